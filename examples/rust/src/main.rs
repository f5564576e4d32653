//! One layer of a network: out = max(0, a * b + bias), by a tuned kernel and by three loops.

use std::alloc::{alloc, dealloc, Layout};
use std::ffi::{c_int, c_void};
use std::process::ExitCode;

mod kernel {
    use super::{c_int, c_void};
    include!(concat!(env!("OUT_DIR"), "/kernel.rs"));
}

const M: usize = 128;
const N: usize = 96;
const K: usize = 80;
const ALIGNMENT: usize = 64;

/// Memory that begins where the kernel wants it.
struct Aligned(*mut u8, Layout);

impl Aligned {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).unwrap();
        let to = unsafe { alloc(layout) };
        assert!(!to.is_null(), "out of memory");
        Aligned(to, layout)
    }

    fn pointer(&self) -> *mut c_void {
        self.0.cast()
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        unsafe { dealloc(self.0, self.1) }
    }
}

fn filled(count: usize, mut seed: u32) -> Vec<f32> {
    (0..count)
        .map(|_| {
            seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
            (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn plain_loops(a: &[f32], b: &[f32], bias: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; M * N];
    for i in 0..M {
        for j in 0..N {
            let sum: f32 = (0..K).map(|k| a[i * K + k] * b[k * N + j]).sum();
            out[i * N + j] = (sum + bias[j]).max(0.0);
        }
    }
    out
}

fn main() -> ExitCode {
    if unsafe { kernel::supported() } == 0 {
        eprintln!("layer: this processor lacks what the kernel needs; tune on this machine");
        return ExitCode::FAILURE;
    }
    let (a, b, bias) = (filled(M * K, 1), filled(K * N, 2), filled(N, 3));
    let mut out = vec![0.0f32; M * N];
    let packed = Aligned::new(kernel::PACKED_BYTES);
    let scratch = Aligned::new(kernel::SCRATCH_BYTES);
    let mut code = unsafe { kernel::prepare(b.as_ptr(), packed.pointer()) };
    if code == 0 {
        code = unsafe {
            kernel::run(
                a.as_ptr(),
                packed.pointer(),
                bias.as_ptr(),
                out.as_mut_ptr(),
                scratch.pointer(),
            )
        };
    }
    if code != 0 {
        eprintln!("layer: the kernel refused its arguments with code {code}");
        return ExitCode::FAILURE;
    }
    let expected = plain_loops(&a, &b, &bias);
    let worst = out.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    println!("largest difference {worst:.2e}");
    if worst < 1e-4 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
