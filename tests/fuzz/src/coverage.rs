//! libFuzzer, within a test: it makes inputs of those that reached new code.

#![allow(unsafe_code, reason = "libFuzzer is C++")]

use crate::{MAX_BYTES, folder, mutation, number, try_one};
use libfuzzer_sys as _;
use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        one: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

static TARGET: OnceLock<(&'static str, fn(&[u8]))> = OnceLock::new();

/// Goes on for `OXIGRESS_FUZZ_SECONDS`, then ends the process. The corpus stays for the next time.
pub fn run(name: &'static str, seeds: &[Vec<u8>], property: fn(&[u8])) {
    assert!(TARGET.set((name, property)).is_ok(), "one target a process");
    let write = |path: std::path::PathBuf, bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    let corpus = folder().join("corpus").join(name);
    std::fs::create_dir_all(&corpus).unwrap_or_else(|e| panic!("{}: {e}", corpus.display()));
    for (number, seed) in seeds.iter().enumerate() {
        write(corpus.join(format!("seed-{number}")), seed);
    }
    let line = |piece: &&str| {
        let hex = piece.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        format!("\"{hex}\"\n")
    };
    let dictionary = folder().join("dictionary");
    write(dictionary.clone(), mutation::PIECES.iter().map(line).collect::<String>().as_bytes());
    let seconds = number("OXIGRESS_FUZZ_SECONDS").unwrap_or(60);
    let seed = number("OXIGRESS_FUZZ_SEED").map_or(String::new(), |seed| format!("-seed={seed}"));
    let arguments = [
        name.into(),
        corpus.display().to_string(),
        format!("-dict={}", dictionary.display()),
        format!("-artifact_prefix={}/{name}-", folder().display()),
        format!("-max_total_time={seconds}"),
        format!("-max_len={MAX_BYTES}"),
        "-timeout=20".into(),
        "-detect_leaks=0".into(),
        "-print_final_stats=1".into(),
        seed,
    ];
    let words = arguments.into_iter().filter(|argument| !argument.is_empty());
    let mut words: Vec<*mut c_char> = words
        .map(|word| CString::new(word).map_or(std::ptr::null_mut(), CString::into_raw))
        .chain([std::ptr::null_mut()])
        .collect();
    let (mut count, mut all) = (words.len() as c_int - 1, words.as_mut_ptr());
    // SAFETY: the words are C strings that nobody frees, ended by a null; libFuzzer keeps them within this call.
    unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut all, one) };
}

extern "C" fn one(input: *const u8, bytes: usize) -> c_int {
    let input = match bytes {
        0 => &[],
        // SAFETY: libFuzzer passes an input of this length, which lives until this returns.
        _ => unsafe { std::slice::from_raw_parts(input, bytes) },
    };
    if let Some((name, property)) = TARGET.get() {
        let tried = || try_one(name, "found by coverage", input, *property);
        // What libFuzzer has to see of a panic is an abort; unwinding through it would be undefined.
        if std::panic::catch_unwind(tried).is_err() {
            std::process::abort();
        }
    }
    0
}
