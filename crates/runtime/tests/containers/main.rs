//! Images and real containers, each story on a machine of its own: pulled, unpacked, started, signalled, limited, attacked,
//! compared with runc. Needs root.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "tests")]

mod beside_runc;
mod common;
mod containers;
mod corpus;
mod crashes;
mod full_disk;
mod garbage;
mod hostile_images;
mod identity;
mod image;
mod image_support;
mod image_tools;
mod leftovers;
mod legacy;
mod limits;
mod misuse;
mod pull;
mod registry_support;
mod settings;
mod streams;
mod survival;
mod unpacking;
mod weights;
