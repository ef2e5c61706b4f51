//! Configurations for rustls that believe a certificate for its hash alone.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::rack::identity::{Fingerprint, Identity};

/// For a host that is connected to by any of `hosts`.
pub fn server(identity: &Identity, hosts: Vec<Fingerprint>) -> Result<ServerConfig, Error> {
    let pins = Pins::new(hosts);
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&pins.provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(pins))
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    // Every session proves anew who it is.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// For a host that connects to `host`.
pub fn client(identity: &Identity, host: Fingerprint) -> Result<ClientConfig, Error> {
    let pins = Pins::new(vec![host]);
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&pins.provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pins))
        .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
    config.enable_sni = false;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Nobody looks at it.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("crosslane").expect("a plain name is one")
}

/// Certificates that are believed, each for its hash. That the other side has the key to it, rustls
/// asks for by a signature, which is checked as everywhere.
#[derive(Debug)]
struct Pins {
    hosts: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl Pins {
    fn new(hosts: Vec<Fingerprint>) -> Self {
        Self {
            hosts,
            provider: Arc::new(ring::default_provider()),
        }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match self.hosts.contains(&Fingerprint::of(certificate)) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// TLS 1.2 is not spoken.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(
        rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13,
    ))
}

impl ServerCertVerifier for Pins {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pins {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
