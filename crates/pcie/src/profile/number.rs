//! The numbers of a profile, and what each may be.

use std::fmt;

use serde_json::Value;

use super::ProfileError;

/// A number of a profile: its name in the file, its value unless the profile has no such part, and
/// what it may be.
pub(super) type Field<P> = (&'static str, fn(&P) -> Option<Number>, Legal);

/// A number of a profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

/// A number that every profile has.
pub(super) fn real(value: f64) -> Option<Number> {
    Some(Number::Real(value))
}

/// As [`real`].
pub(super) fn whole(value: impl TryInto<u64>) -> Option<Number> {
    Some(Number::Whole(value.try_into().unwrap_or(u64::MAX)))
}

/// What a number may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Legal {
    /// A whole number from the first to the last.
    Whole(u64, u64),
    /// One of these.
    OneOf(&'static [u32]),
    /// A power of two from the first to the last.
    Power(u64, u64),
    /// From the first to the last, and the unit.
    Real(f64, f64, &'static str),
}

impl Legal {
    fn allows(self, number: Number) -> bool {
        match (self, number) {
            (Self::Real(least, most, _), Number::Real(value)) => (least..=most).contains(&value),
            (Self::Real(..), Number::Whole(_)) | (_, Number::Real(_)) => false,
            (Self::Whole(least, most), Number::Whole(value)) => (least..=most).contains(&value),
            (Self::Power(least, most), Number::Whole(value)) => {
                value.is_power_of_two() && (least..=most).contains(&value)
            }
            (Self::OneOf(list), Number::Whole(value)) => {
                list.iter().any(|one| u64::from(*one) == value)
            }
        }
    }

    /// Whether a file's value can be it.
    fn allows_json(self, value: &Value) -> bool {
        let number = match self {
            Self::Real(..) => value.as_f64().map(Number::Real),
            _ => value.as_u64().map(Number::Whole),
        };
        number.is_some_and(|number| self.allows(number))
    }
}

/// The first number that is not what it may be.
pub(super) fn check<P>(
    profile: &P,
    place: &dyn Fn() -> String,
    fields: &[Field<P>],
) -> Result<(), ProfileError> {
    for (field, value, legal) in fields {
        let wrong = value(profile).filter(|value| !legal.allows(*value));
        if let Some(value) = wrong {
            return Err(ProfileError::Range {
                place: place(),
                field,
                value: value.to_string(),
                legal: legal.to_string(),
            });
        }
    }
    Ok(())
}

/// The first number in a file that is not what it may be: where one has a type that no profile has,
/// its range says more than the type.
pub(super) fn find_wrong<P>(
    file: &Value,
    place: &str,
    fields: &[Field<P>],
) -> Option<ProfileError> {
    fields.iter().find_map(|(field, _, legal)| {
        let mut parts = field.split('.');
        let value = parts.try_fold(file, |object, part| object.get(part))?;
        (!legal.allows_json(value)).then(|| ProfileError::Range {
            place: place.to_owned(),
            field,
            value: value.to_string(),
            legal: legal.to_string(),
        })
    })
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(f),
            Self::Real(value) if value.abs() < 1e15 => value.fmt(f),
            // Not three hundred digits.
            Self::Real(value) => write!(f, "{value:?}"),
        }
    }
}

impl fmt::Display for Legal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::Power(least, most) => write!(f, "a power of two from {least} to {most}"),
            Self::OneOf(list) => {
                let (last, rest) = list
                    .split_last()
                    .expect("a list of what is legal has items");
                let rest: Vec<String> = rest.iter().map(u32::to_string).collect();
                write!(f, "{} or {last}", rest.join(", "))
            }
            Self::Real(least, most, unit) => {
                let most = Number::Real(*most);
                write!(f, "{least} to {most}")?;
                if unit.is_empty() {
                    return Ok(());
                }
                write!(f, " {unit}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_values_are_written_as_people_write_them() {
        for (legal, text) in [
            (Legal::Whole(1, 64), "a whole number from 1 to 64"),
            (Legal::OneOf(&[32, 64]), "32 or 64"),
            (Legal::Power(1, 4), "a power of two from 1 to 4"),
            (Legal::Real(0.001, 1e9, "ns"), "0.001 to 1000000000 ns"),
            (Legal::Real(0.0, 1.0, ""), "0 to 1"),
        ] {
            assert_eq!(legal.to_string(), text);
        }
        assert_eq!(Number::Real(-1.0).to_string(), "-1");
        assert_eq!(Number::Real(1e300).to_string(), "1e300");
        assert_eq!(Number::Real(f64::NAN).to_string(), "NaN");
    }
}
