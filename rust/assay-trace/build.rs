//! Compiles the recorder's kernel side twice, for the fast and for the portable hooks; both objects are embedded.
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let arch = if machine == "aarch64" { "arm64" } else { "x86" };
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    for (name, cpu, more) in [
        ("recorder.o", "v3", None),
        ("recorder-raw.o", "v2", Some("-DRAW")),
    ] {
        let object = out.join(name);
        let status = Command::new(&clang)
            .args(["-O2", "-g", "-target", "bpf", "-Wall", "-Werror"])
            .args([format!("-mcpu={cpu}"), format!("-D__TARGET_ARCH_{arch}")])
            .arg(format!("-I/usr/include/{machine}-linux-gnu")) // asm/types.h on Debian and Ubuntu
            .args(more)
            .args(["-c", "bpf/recorder.bpf.c", "-o"])
            .arg(&object)
            .status();
        match status {
            Ok(s) if s.success() => {}
            Ok(_) => panic!("clang cannot compile bpf/recorder.bpf.c; it needs libbpf's headers: apt-get install libbpf-dev"),
            Err(e) => panic!("the recorder's kernel side needs clang ({clang}: {e}): apt-get install clang libbpf-dev"),
        }
        // debug sections only; BTF stays. Without llvm-strip the object is merely larger.
        let _ = Command::new("llvm-strip").arg("-g").arg(&object).status();
    }
}
