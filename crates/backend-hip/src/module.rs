//! Modules and kernels of HIP.
#![expect(unsafe_code, reason = "loads modules and fills memory through the runtime")]

use std::sync::Arc;

use backend_gpu::handle::{Function, Module};
use backend_gpu::{
    Api, BuiltinKernel, Code, Context, Device, Kernels, NotLoaded, Stream, aligned, written,
};
use runtime_core::Result;
use runtime_core::contract::ParamInfo;

use crate::code_object::Metadata;
use crate::hip::Hip;
use crate::kernels::{self, BuiltinKernels};
use crate::library::Library;

/// The number of bytes that the runtime copies from the start of a bundle, however short the bundle is.
const LEAST_BYTES: usize = 4096;

/// The maximum number of blocks of a launch: a launch counts work-items with 32 bits, and a block of the kernel for
/// region copies has 256.
const MAX_REGION_BLOCKS: u32 = u32::MAX / 256;

/// Loads a binary that was checked to be complete.
pub(crate) fn load(context: &Context<Hip>, image: &[u8]) -> Result<Module, u32> {
    let image = aligned(image, LEAST_BYTES);
    context.outside_captures(|api| {
        let load = api.functions.hipModuleLoadData;
        // SAFETY: the binary is complete, and the handle is written to a valid place.
        written(|module| unsafe { load(module, image.as_ptr().cast()) })
    })
}

impl Kernels<Self> for Hip {
    type Builtin = BuiltinKernels;
    const MAX_REGION_BLOCKS: u32 = MAX_REGION_BLOCKS;

    fn builtin_kernels(context: &Arc<Context<Self>>) -> BuiltinKernels {
        BuiltinKernels::new(context)
    }

    fn region_function(device: &Device<Self>, kernel: BuiltinKernel) -> Result<Function> {
        kernels::function(device, kernel)
    }

    /// Fills the first words one by one. Then copies the filled part behind itself, which doubles it, until the range
    /// is full. A kernel would need a compiler.
    unsafe fn fill_pattern(
        stream: &Stream<Self>,
        to: u64,
        bytes: usize,
        words: [u32; 4],
    ) -> Result<()> {
        const OPERATION: &str = "memory_fill";
        for (word, at) in words.into_iter().zip((0..bytes).step_by(size_of::<u32>())) {
            let fill = |api: &Library, stream| {
                // SAFETY: the caller guarantees the range, which contains the word.
                unsafe { api.fill_32(to + at as u64, word, 1, stream) }
            };
            // SAFETY: the outcome is that of the fill.
            unsafe { stream.call(OPERATION, "a fill", fill) }?;
        }
        let mut there = bytes.min(size_of_val(&words));
        while there < bytes {
            let count = there.min(bytes - there);
            let copy = |api: &Library, stream| {
                // SAFETY: as above; the ranges do not overlap.
                unsafe { api.copy(to + there as u64, to, count, stream) }
            };
            // SAFETY: the outcome is that of the copy.
            unsafe { stream.call(OPERATION, "a fill", copy) }?;
            there += count;
        }
        Ok(())
    }

    fn load(context: &Context<Self>, code: &Code<Self>) -> Result<Module, NotLoaded> {
        let about = || match code.signatures.target.as_str() {
            "" => "the runtime does not take the code".to_owned(),
            target => format!("the runtime does not take the code, which is for {target}"),
        };
        load(context, &code.image).map_err(|code| NotLoaded { code, about: about(), log: None })
    }

    fn instead_of(_: &Metadata, _: &str) -> String {
        String::new()
    }

    fn parameters(
        _: &Context<Self>,
        _: Function,
        metadata: &Metadata,
        kernel: &str,
    ) -> Option<Vec<ParamInfo>> {
        metadata.kernel(kernel).map(<[_]>::to_vec)
    }

    fn granted(most: u32, _: u32) -> u32 {
        most
    }

    fn raise_shared(_: &Context<Self>, _: Function, _: u32) -> Result<(), u32> {
        // Everything is granted from the start.
        Ok(())
    }

    fn max_shared(bytes: u32) -> String {
        format!("this kernel has at most {bytes}")
    }
}
