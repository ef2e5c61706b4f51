//! This host's key and certificate, and the fingerprints by which hosts know each other.
//!
//! Certificates are self-signed and say nothing: a host is who has the key of the certificate
//! whose SHA-256 is written in the other's `rack.toml`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use thiserror::Error;

const PREFIX: &str = "sha256:";

/// SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// That of a certificate.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Read `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().strip_prefix(PREFIX)?.as_bytes();
        let mut bytes = [0; 32];
        let (pairs, rest) = digits.as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |c: &u8| char::from(*c).to_digit(16);
            *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is wrong with this host's key or certificate.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file cannot be read or written.
    #[error("{path}: {error}; `crosslane rack init` makes a key and a certificate")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Others can read the key.
    #[error(
        "{path} has mode {mode:o} and belongs to user {owner}: it must be this user's and no other's, mode 600"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its owner.
        owner: u32,
    },
    /// No certificate or key in PEM.
    #[error("{path} is not in PEM: {error}; `crosslane rack init` makes a key and a certificate")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: rustls::pki_types::pem::Error,
    },
    /// The key could not be made.
    #[error("cannot make a key: {0}")]
    Make(#[from] rcgen::Error),
}

/// A key and its certificate.
pub struct Identity {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The key.
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Make a key and a certificate for a host of this name, in files that are not there yet.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn create(
        name: &str,
        certificate: &Path,
        key: &Path,
    ) -> Result<Fingerprint, IdentityError> {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()])?;
        write_new(key, 0o600, &made.signing_key.serialize_pem())?;
        write_new(certificate, 0o644, &made.cert.pem())?;
        Ok(Fingerprint::of(made.cert.der()))
    }

    /// Read both files.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let open = |path: &Path| {
            File::open(path).map_err(|error| IdentityError::File {
                path: path.to_owned(),
                error,
            })
        };
        let key_file = open(key)?;
        let found = key_file.metadata().map_err(|error| IdentityError::File {
            path: key.to_owned(),
            error,
        })?;
        let own = rustix::process::geteuid().as_raw();
        if found.mode() & 0o077 != 0 || (found.uid() != own && found.uid() != 0) {
            return Err(IdentityError::Exposed {
                path: key.to_owned(),
                mode: found.mode() & 0o7777,
                owner: found.uid(),
            });
        }
        let bad = |path: &Path| {
            let path = path.to_owned();
            move |error| IdentityError::Pem { path, error }
        };
        Ok(Self {
            key: PrivateKeyDer::from_pem_reader(key_file).map_err(bad(key))?,
            certificate: CertificateDer::from_pem_reader(open(certificate)?)
                .map_err(bad(certificate))?,
        })
    }

    /// What others pin.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}

/// Write a file that is not there yet.
pub fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), IdentityError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| IdentityError::File {
            path: path.to_owned(),
            error,
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written() {
        let print = Fingerprint::of(b"certificate");
        assert_eq!(Fingerprint::parse(&print.to_string()), Some(print));
        let text = print.to_string();
        for wrong in [
            &text[1..],
            &text[..70],
            &text.replace(':', ""),
            "",
            "sha256:",
        ] {
            assert_eq!(Fingerprint::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Fingerprint::parse(&format!("{text}0")), None);
        assert_eq!(Fingerprint::parse(&text.replace(['a', '1'], "g")), None);
    }

    #[test]
    fn a_new_identity_is_read_back_and_its_key_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let [crt, key] = ["rack.crt", "rack.key"].map(|name| folder.path().join(name));
        let print = Identity::create("alpha", &crt, &key).unwrap();
        assert_eq!(Identity::read(&crt, &key).unwrap().fingerprint(), print);
        let mode = std::fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(
            Identity::create("alpha", &crt, &key),
            Err(IdentityError::File { .. })
        ));
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(
            Identity::read(&crt, &key),
            Err(IdentityError::Exposed { mode: 0o640, .. })
        ));
    }
}
