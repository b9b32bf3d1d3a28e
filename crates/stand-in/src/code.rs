//! Codes of errors. CUDA and HIP use the same numbers for all of them.

/// An error code of a driver's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

/// The result of a call of the engine.
pub type Result<T, E = Code> = std::result::Result<T, E>;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self($number);)*
        }
    };
}

codes! {
    /// An argument is null, out of range, or names no memory.
    INVALID_VALUE = 1;
    /// There is not enough memory.
    OUT_OF_MEMORY = 2;
    /// The driver was not initialised.
    NOT_INITIALIZED = 3;
    /// There is no such device.
    NO_DEVICE = 100;
    /// There is no device with this number.
    INVALID_DEVICE = 101;
    /// The image of a module is in no known format.
    INVALID_IMAGE = 200;
    /// No context is current, or it is gone.
    INVALID_CONTEXT = 201;
    /// The image contains no code for this device.
    NO_BINARY_FOR_GPU = 209;
    /// An ECC error: the device is lost.
    ECC_UNCORRECTABLE = 214;
    /// The text of a module does not compile.
    INVALID_PTX = 218;
    /// The text of a module is for a newer driver or device.
    UNSUPPORTED_PTX_VERSION = 222;
    /// The operating system refused.
    OPERATING_SYSTEM = 304;
    /// The handle names nothing of its kind that is alive.
    INVALID_HANDLE = 400;
    /// No such kernel, variable or parameter.
    NOT_FOUND = 500;
    /// Work is not finished. Not an error.
    NOT_READY = 600;
    /// A kernel accessed an address without memory.
    ILLEGAL_ADDRESS = 700;
    /// A launch needs more than a multiprocessor has.
    LAUNCH_OUT_OF_RESOURCES = 701;
    /// Peer access was enabled before.
    PEER_ACCESS_ALREADY_ENABLED = 704;
    /// An assertion of a kernel failed.
    ASSERT = 710;
    /// A page of host memory is registered already.
    HOST_MEMORY_ALREADY_REGISTERED = 712;
    /// The host memory is not registered.
    HOST_MEMORY_NOT_REGISTERED = 713;
    /// A kernel executed an invalid instruction.
    ILLEGAL_INSTRUCTION = 715;
    /// A kernel accessed memory at an address that is not a multiple of the access size.
    MISALIGNED_ADDRESS = 716;
    /// A kernel failed.
    LAUNCH_FAILED = 719;
    /// A launch needs more blocks at once than can run.
    COOPERATIVE_LAUNCH_TOO_LARGE = 720;
    /// The call or its arguments are not supported.
    NOT_SUPPORTED = 801;
    /// The call is not allowed while a stream is captured.
    STREAM_CAPTURE_UNSUPPORTED = 900;
    /// An earlier call invalidated the capture.
    STREAM_CAPTURE_INVALIDATED = 901;
    /// The wait would join two captures.
    STREAM_CAPTURE_MERGE = 902;
    /// The capture was not begun on this stream.
    STREAM_CAPTURE_UNMATCHED = 903;
    /// The capture has work that its first stream did not wait for.
    STREAM_CAPTURE_UNJOINED = 904;
    /// Captured work would wait for work outside.
    STREAM_CAPTURE_ISOLATION = 905;
    /// The event marks captured work.
    CAPTURED_EVENT = 907;
    /// The capture was begun by another thread.
    STREAM_CAPTURE_WRONG_THREAD = 908;
    /// Anything else.
    UNKNOWN = 999;
}

impl Code {
    /// Whether the code means that work failed when it ran, and that its context ended.
    pub fn is_late(self) -> bool {
        matches!(self.0, 214 | 700 | 702 | 710 | 714..=719)
    }
}
