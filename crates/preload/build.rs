//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What one of its functions calls is the library's own, also where the program has a function of that name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
