//! Links the library, and writes down the kernel's symbol and sizes, which change with a search.

use std::{env, fs, path::Path};

fn main() {
    let folder = env::var("TILEWISE").unwrap_or_else(|_| "tuned".into());
    let folder = fs::canonicalize(&folder).unwrap_or_else(|_| {
        panic!("no library in {folder}; tilewise library problems.txt -o tuned makes one")
    });
    let path = folder.join("manifest.json");
    let manifest = fs::read_to_string(&path).expect("manifest.json cannot be read");
    let symbol = value(&manifest, "symbol").trim_matches('"').to_owned();
    let text = format!(
        "pub const SCRATCH_BYTES: usize = {};\npub const PACKED_BYTES: usize = {};\n\
         extern \"C\" {{\n\
         #[link_name = \"{symbol}_supported\"] pub fn supported() -> c_int;\n\
         #[link_name = \"{symbol}_prepare\"]\n\
         pub fn prepare(b: *const f32, packed: *mut c_void) -> c_int;\n\
         #[link_name = \"{symbol}\"]\n\
         pub fn run(a: *const f32, packed: *const c_void, bias: *const f32, out: *mut f32,\n\
         scratch: *mut c_void) -> c_int;\n}}\n",
        value(&manifest, "scratch_bytes"),
        value(&manifest, "packed_bytes"),
    );
    let to = Path::new(&env::var("OUT_DIR").unwrap()).join("kernel.rs");
    fs::write(to, text).expect("the kernel's declarations cannot be written");
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static=tilewise");
    println!("cargo:rerun-if-changed={}", path.display());
    println!("cargo:rerun-if-env-changed=TILEWISE");
}

/// The value of a key of the manifest's one kernel; it has no escapes.
fn value<'a>(manifest: &'a str, key: &str) -> &'a str {
    let start = format!("\"{key}\": ");
    let at = manifest.find(&start).expect("the manifest lacks a key") + start.len();
    let rest = &manifest[at..];
    rest[..rest.find(['\n', ',']).expect("the manifest ends early")].trim()
}
