//! The examples of the README, of the guide and of pages in `docs`, so that they are compiled and run.

macro_rules! pages {
    ($($page:ident: $file:literal, $($feature:literal),*;)*) => {
        $(
            #[cfg(all($(feature = $feature),*))]
            #[doc = include_str!(concat!("../../../", $file))]
            struct $page;
        )*
    };
}

pages! {
    Readme: "README.md", "host", "stencil";
    CudaPage: "docs/cuda.md", "cuda";
    HipPage: "docs/hip.md", "hip";
    FirstDevice: "docs/guide/first-device.md", "host";
    Memory: "docs/guide/memory.md", "host", "sim";
    Kernels: "docs/guide/kernels.md", "host", "sim", "stencil";
    Arrays: "docs/guide/arrays.md", "array", "sim";
    Tiles: "docs/guide/tiles.md", "array", "sim";
    Ghosts: "docs/guide/ghosts.md", "array", "halo", "host";
    Ranks: "docs/guide/ranks.md", "host", "stencil";
    Sphere: "docs/guide/sphere.md", "host", "stencil";
    Meshes: "docs/guide/meshes.md", "halo", "host";
    Gpus: "docs/guide/gpus.md", "array", "sim", "stencil";
    Mistakes: "docs/guide/mistakes.md", "array", "sim";
    Embedded: "docs/guide/embedded.md", "embedded";
    NewDevice: "docs/guide/new-device.md", "host";
    FromCuda: "docs/guide/from/cuda.md", "cuda", "sim";
    FromHip: "docs/guide/from/hip.md", "hip", "sim";
    FromOpenCl: "docs/guide/from/opencl.md", "opencl", "sim";
    FromKokkos: "docs/guide/from/kokkos.md", "array", "host", "stencil";
    FromNdsl: "docs/guide/from/ndsl.md", "host", "stencil";
    FromPyop3: "docs/guide/from/pyop3.md", "array", "halo", "host";
}
