//! The memory of a field during an exchange.

use std::ops::Range;

use runtime_core::{
    AroundMut, Device, Error, ErrorKind, MAX_RANK, MemoryView, MemoryViewMut, Result, Slot, Stream,
};
use smallvec::SmallVec;

use crate::{Dim, FieldSpec};

/// The values of a field during an exchange: what the rank owns, to read, and the ghosts around it, to write.
///
/// Fields of one exchange are in different memories. Several fields in one memory are one field with a free dimension.
#[derive(Debug)]
pub struct Field<'a> {
    owned: Option<MemoryView<'a>>,
    values: MemoryViewMut<'a>,
}

impl<'a> Field<'a> {
    /// All values of the field, owned and ghosts, laid out as its [spec](FieldSpec) says.
    pub fn new(values: MemoryViewMut<'a>) -> Self {
        Self { owned: None, values }
    }

    /// The values of a field of which the owned ones may be read elsewhere meanwhile: a view of a box with all of them,
    /// and a view as for [`new`](Self::new), through which nothing but ghosts is written.
    ///
    /// Whoever keeps account of the parts of an array lends such views; they are of one memory.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the views are of different memories or element types.
    pub fn split(owned: MemoryView<'a>, ghosts: MemoryViewMut<'a>) -> Result<Self> {
        let whole = ghosts.as_view();
        if !owned.shares_memory(&whole) || owned.dtype() != whole.dtype() {
            let message = format!(
                "owned values {owned:?} and ghosts {whole:?} of different memories or types"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, "field", message));
        }
        Ok(Self { owned: Some(owned), values: ghosts })
    }

    /// A view of all values, owned and ghosts.
    pub fn view(&self) -> MemoryView<'_> {
        self.values.as_view()
    }

    /// A view of all values to write, to set the ghosts beyond a physical boundary for instance.
    ///
    /// # Errors
    ///
    /// `Conflict` for a field made by [`split`](Self::split).
    pub fn view_mut(&mut self) -> Result<MemoryViewMut<'_>> {
        match self.owned {
            None => Ok(self.values.reborrow()),
            Some(_) => Err(Error::new(
                ErrorKind::Conflict,
                "field",
                "its owned values may be read elsewhere",
            )),
        }
    }

    /// Checks it against what was planned.
    pub(crate) fn check(
        &self,
        spec: &FieldSpec,
        rank: usize,
        device: &Device,
        writes_owned: bool,
    ) -> Result<()> {
        let (name, layout) = (spec.name(), self.values.layout());
        let refuse = |kind, message: String| {
            let message = format!("field {name} of rank {rank}: {message}");
            Err(Error::new(kind, "exchange", message).on(device.id()))
        };
        if !self.values.device().is_same(device) {
            return refuse(
                ErrorKind::WrongDevice,
                format!("memory of {}", stranger(self.values.device(), device)),
            );
        }
        let planned = spec.layout();
        if layout.dtype() != planned.dtype() {
            let message = format!("elements of {}, planned {}", layout.dtype(), planned.dtype());
            return refuse(ErrorKind::InvalidArgument, message);
        }
        let stepped = |dim: &usize| planned.shape()[*dim] > 1;
        let alike = layout.shape() == planned.shape()
            && (0..planned.rank())
                .filter(stepped)
                .all(|dim| layout.strides()[dim] == planned.strides()[dim]);
        if !alike {
            let message = format!(
                "shape {:?} with strides {:?}, planned {:?} with {:?}",
                layout.shape(),
                layout.strides(),
                planned.shape(),
                planned.strides()
            );
            return refuse(ErrorKind::InvalidArgument, message);
        }
        if writes_owned && self.owned.is_some() {
            let message =
                "its owned values are lent to read, and this exchange writes them".to_owned();
            return refuse(ErrorKind::Conflict, message);
        }
        Ok(())
    }

    /// Checks that it can be used on a stream.
    pub(crate) fn check_stream(
        &self,
        spec: &FieldSpec,
        rank: usize,
        stream: &Stream,
    ) -> Result<()> {
        if self.values.as_view().is_usable_on(stream) {
            return Ok(());
        }
        let message = format!(
            "field {} of rank {rank}: a view bound to another stream than {}",
            spec.name(),
            stream.id()
        );
        Err(Error::new(ErrorKind::WrongStream, "exchange", message).on(stream.device().id()))
    }

    /// What the rank owns, for others to read, and what is around it.
    pub(crate) fn divide(&mut self, spec: &FieldSpec) -> Result<(MemoryView<'_>, AroundMut<'_>)> {
        let owned: SmallVec<[Range<usize>; MAX_RANK]> =
            spec.dims().iter().map(Dim::owned).collect();
        self.values.reborrow().split_box(&owned)
    }

    pub(crate) fn slot(&mut self) -> Slot<'_> {
        match self.owned {
            None => Slot::Write(self.values.reborrow()),
            Some(read) => Slot::Both { read, write: self.values.reborrow() },
        }
    }
}

/// Another device than the expected one, which may be the same hardware.
pub(crate) fn stranger(other: &Device, expected: &Device) -> String {
    match other.id() == expected.id() {
        true => format!("another opening of {}", other.id()),
        false => other.id().to_string(),
    }
}

impl<'a> From<MemoryViewMut<'a>> for Field<'a> {
    fn from(values: MemoryViewMut<'a>) -> Self {
        Self::new(values)
    }
}
