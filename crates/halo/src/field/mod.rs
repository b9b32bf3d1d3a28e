//! The memory of a field during an exchange.

mod quantity;
mod spec;

use std::ops::Range;

use runtime_core::{
    AnyView, AnyViewMut, AnyViewOutside, Device, Error, ErrorKind, Footprint, MAX_RANK, MemoryView,
    MemoryViewMut, RegionPlan, Result, Slot, Stream, UnfinishedWrite,
};
use smallvec::SmallVec;

pub use self::quantity::{Kind, Quantity};
pub use self::spec::{Dim, FieldSpec};

/// The values of a field during an exchange: the owned values to read, and the ghosts around them to write. For a
/// [`Forest`](crate::Forest), the values are those of an array of roots or of leaves.
///
/// Fields of one exchange share no elements, including ghosts, whether one rank or several ranks have them: they are in
/// different memories, or in separate parts of one memory. Ranks check this, except between processes.
#[derive(Debug)]
pub struct Field<'a> {
    owned: Option<AnyView<'a>>,
    values: Values<'a>,
    /// Set from the first write of an exchange until the exchange is complete. Otherwise the lender of the values would
    /// take the result of half an exchange for their new values.
    write: Option<UnfinishedWrite<'a>>,
}

/// All values of a field.
#[derive(Debug)]
enum Values<'a> {
    Read(AnyView<'a>),
    Write(AnyViewMut<'a>),
}

/// How an exchange uses a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads the values.
    Read,
    /// It reads owned values, and writes ghosts.
    WriteGhosts,
    /// It may read and write all values.
    Write,
}

impl<'a> Field<'a> {
    /// All values of the field, owned values and ghosts, with the layout of its [spec](FieldSpec).
    pub fn new(values: impl Into<AnyViewMut<'a>>) -> Self {
        Self { owned: None, values: Values::Write(values.into()), write: None }
    }

    /// All values of a field that an exchange only reads: the roots of a [broadcast](crate::Forest::broadcast), or the
    /// leaves of a [reduction](crate::Forest::reduce).
    pub fn read(values: impl Into<AnyView<'a>>) -> Self {
        Self { owned: None, values: Values::Read(values.into()), write: None }
    }

    /// The values of a field whose owned values may be read elsewhere during the exchange. `owned` is a view of a box
    /// that contains all owned values. `ghosts` is a view as for [`new`](Self::new), through which only ghosts are
    /// written.
    ///
    /// Types that track the parts of an array lend such views. Both views are of one memory.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the views are of different memories or element types.
    pub fn split(owned: impl Into<AnyView<'a>>, ghosts: impl Into<AnyViewMut<'a>>) -> Result<Self> {
        let (owned, ghosts) = (owned.into(), ghosts.into());
        let whole = ghosts.as_view();
        if !owned.shares_memory(&whole) || owned.dtype() != whole.dtype() {
            let message = format!(
                "owned values {owned:?} and ghosts {whole:?} of different memories or types"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, "field", message));
        }
        Ok(Self { owned: Some(owned), values: Values::Write(ghosts), write: None })
    }

    /// Returns a view of all values, owned values and ghosts.
    pub fn view(&self) -> AnyView<'_> {
        match &self.values {
            Values::Read(values) => *values,
            Values::Write(values) => values.as_view(),
        }
    }

    /// Returns a view of all values for writing, for example to set the ghosts beyond a physical boundary.
    ///
    /// # Errors
    ///
    /// `Conflict` for a field made by [`read`](Self::read) or [`split`](Self::split).
    pub fn view_mut(&mut self) -> Result<AnyViewMut<'_>> {
        match (&mut self.values, self.owned) {
            (Values::Write(values), None) => Ok(values.reborrow()),
            (Values::Write(_), Some(_)) => Err(lent("its owned values")),
            (Values::Read(_), _) => Err(lent("its values")),
        }
    }

    /// Checks the field against its plan, and that it can be used on a stream of the device.
    pub(crate) fn check(
        &self,
        spec: &FieldSpec,
        rank: usize,
        stream: &Stream,
        access: Access,
    ) -> Result<()> {
        let whole = self.view();
        let (name, layout, device) = (spec.name(), whole.layout(), stream.device());
        let refuse = |kind, message: String| {
            let message = format!("field {name} of rank {rank}: {message}");
            Err(Error::new(kind, "exchange", message).on(device.id()))
        };
        if !whole.device().is_same(device) {
            return refuse(
                ErrorKind::WrongDevice,
                format!("memory of {}", describe_other(whole.device(), device)),
            );
        }
        let planned = spec.layout();
        if layout.dtype() != planned.dtype() {
            let message = format!("elements of {}, planned {}", layout.dtype(), planned.dtype());
            return refuse(ErrorKind::InvalidArgument, message);
        }
        let stepped = |dim: &usize| planned.shape()[*dim] > 1;
        let matches = layout.shape() == planned.shape()
            && (0..planned.rank())
                .filter(stepped)
                .all(|dim| layout.strides()[dim] == planned.strides()[dim]);
        if !matches {
            let message = format!(
                "shape {:?} with strides {:?}, planned {:?} with {:?}: see MemoryViewMut::with_layout and FieldSpec::layout",
                layout.shape(),
                layout.strides(),
                planned.shape(),
                planned.strides()
            );
            return refuse(ErrorKind::InvalidArgument, message);
        }
        let lent = match (access, &self.values) {
            (Access::Write | Access::WriteGhosts, Values::Read(_)) => Some("its values"),
            (Access::Write, _) if self.owned.is_some() => Some("its owned values"),
            _ => None,
        };
        if let Some(lent) = lent {
            let message = format!("{lent} are lent for reading, and this exchange writes them");
            return refuse(ErrorKind::Conflict, message);
        }
        if let Some(owned) = &self.owned {
            // Offsets of elements count from the first byte of all values.
            let (has, all) = (owned.byte_range(), whole.byte_range());
            let needed = whole.region(&owned_box(spec))?.byte_range();
            if has.start < all.start || has.start > needed.start || has.end < needed.end {
                let message = format!(
                    "a view to read of bytes {has:?} of the memory; owned values are at {needed:?}, all at {all:?}"
                );
                return refuse(ErrorKind::InvalidArgument, message);
            }
        }
        if [Some(whole), self.owned].iter().flatten().any(|view| !view.is_usable_on(stream)) {
            let message = format!("a view bound to another stream than {}", stream.id());
            return refuse(ErrorKind::WrongStream, message);
        }
        Ok(())
    }

    /// Splits the field into the owned values, for other ranks to read, and the values outside them.
    pub(crate) fn divide(&mut self, spec: &FieldSpec) -> Result<(AnyView<'_>, AnyViewOutside<'_>)> {
        match &mut self.values {
            Values::Write(values) => values.reborrow().split_off_box(&owned_box(spec)),
            Values::Read(_) => Err(lent("its values")),
        }
    }

    fn slot(&mut self) -> Slot<'_> {
        match (&mut self.values, self.owned) {
            (Values::Read(values), _) => Slot::Read(*values),
            (Values::Write(values), None) => Slot::Write(values.reborrow()),
            (Values::Write(values), Some(read)) => Slot::Both { read, write: values.reborrow() },
        }
    }
}

#[cold]
fn lent(what: &str) -> Error {
    Error::new(ErrorKind::Conflict, "field", format!("{what} are lent for reading"))
}

/// Executes a plan whose first slots are the fields, of which it uses those on its device. The writes of the fields that
/// it writes have then begun.
pub(crate) fn execute(
    plan: &RegionPlan,
    stream: &Stream,
    fields: &mut [Field<'_>],
    others: Vec<Slot<'_>>,
) -> Result<()> {
    let own = fields.iter_mut().map(|field| {
        if field.view().device().is_same(stream.device()) { field.slot() } else { Slot::Absent }
    });
    let mut slots: Vec<Slot<'_>> = own.chain(others).collect();
    slots.truncate(plan.slots().len());
    plan.execute(stream, &mut slots)?;
    drop(slots);
    begin_writes(plan, fields);
    Ok(())
}

/// Begins the writes of the fields that a plan writes, whose first slots are the fields.
pub(crate) fn begin_writes(plan: &RegionPlan, fields: &mut [Field<'_>]) {
    for (field, used) in fields.iter_mut().zip(plan.slots()) {
        if let Values::Write(values) = &mut field.values
            && used.written
            && field.write.is_none()
        {
            field.write = Some(values.begin_write());
        }
    }
}

/// Ends the writes of an exchange that is complete.
pub(crate) fn end_writes(fields: &mut [Field<'_>]) {
    fields.iter_mut().filter_map(|field| field.write.take()).for_each(UnfinishedWrite::end);
}

/// Gives up writes of earlier exchanges that did not complete. They count as failed for ever.
pub(crate) fn abandon_writes(fields: &mut [Field<'_>]) {
    fields.iter_mut().for_each(|field| field.write = None);
}

/// The elements of those fields whose elements other memory may have, with the numbers of the fields.
pub(crate) fn footprints(fields: &[Field<'_>]) -> Vec<(usize, Footprint)> {
    let elements = |(number, field): (usize, &Field<'_>)| Some((number, field.view().footprint()?));
    fields.iter().enumerate().filter_map(elements).collect()
}

/// The index ranges of the values that a rank owns of a field.
fn owned_box(spec: &FieldSpec) -> SmallVec<[Range<usize>; MAX_RANK]> {
    spec.dims().iter().map(Dim::owned).collect()
}

/// The description of a device that differs from the expected one. Both may be the same hardware.
pub(crate) fn describe_other(other: &Device, expected: &Device) -> String {
    match other.id() == expected.id() {
        true => format!("another opening of {}", other.id()),
        false => other.id().to_string(),
    }
}

impl<'a, T> From<MemoryView<'a, T>> for Field<'a> {
    /// As [`Field::read`].
    fn from(values: MemoryView<'a, T>) -> Self {
        Self::read(values.erase())
    }
}

impl<'a, T> From<MemoryViewMut<'a, T>> for Field<'a> {
    fn from(values: MemoryViewMut<'a, T>) -> Self {
        Self::new(values.erase())
    }
}
