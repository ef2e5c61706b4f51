//! Names the interface in the shared library for C: a program that is linked with it asks for that name when it starts.

/// The number changes when programs have to be compiled anew; `xtask/src/install.rs` names the file so.
const SONAME: &str = "libcrosslane_api.so.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
}
