//! Counts the atomic read-modify-writes of calls of the front, and compares them with `docs/architecture.md`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod counts;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    counts::main()
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("instructions are counted on Linux on x86-64 only");
}
