//! The v2 document as the protobuf message `openapi.v2.Document`, the only form in which kubectl takes it.
//!
//! Only what [`super::OpenApiV2`] writes is known here. The numbers are those of the published message.

use serde_json::Value;

/// The document's bytes.
pub fn protobuf(document: &Value) -> Vec<u8> {
    let info = &document["info"];
    let info = [text(1, &info["title"]), text(2, &info["version"])].concat();
    let paths: Vec<u8> =
        entries(&document["paths"]).flat_map(|(path, item)| field(2, &named(path, &path_item(item)))).collect();
    let definitions = named_schemas(&document["definitions"]);
    [text(1, &document["swagger"]), field(2, &info), field(8, &paths), field(9, &definitions)].concat()
}

fn path_item(item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (method, number) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
        if let Some(found) = item.get(method) {
            out.extend(field(number, &operation(found)));
        }
    }
    out.extend(list(&item["parameters"]).flat_map(|each| field(9, &parameter(each))));
    out
}

fn operation(operation: &Value) -> Vec<u8> {
    let mut out = text(5, &operation["operationId"]);
    out.extend(list(&operation["produces"]).flat_map(|media| text(6, media)));
    out.extend(list(&operation["consumes"]).flat_map(|media| text(7, media)));
    out.extend(list(&operation["parameters"]).flat_map(|each| field(8, &parameter(each))));
    let responses: Vec<u8> =
        entries(&operation["responses"]).flat_map(|(code, each)| field(1, &named(code, &response(each)))).collect();
    out.extend(field(9, &responses));
    out.extend(extensions(13, operation));
    out
}

fn response(response: &Value) -> Vec<u8> {
    let mut out = text(1, &response["description"]);
    if response["schema"].is_object() {
        out.extend(field(2, &field(1, &schema(&response["schema"]))));
    }
    field(1, &out)
}

fn parameter(parameter: &Value) -> Vec<u8> {
    let (name, place, kind) = (&parameter["name"], &parameter["in"], &parameter["type"]);
    let required = flag(1, &parameter["required"]);
    let found = match place.as_str() {
        Some("body") => {
            let required = flag(4, &parameter["required"]);
            let body = [text(2, name), text(3, place), required, field(5, &schema(&parameter["schema"]))].concat();
            field(1, &body)
        }
        Some("path") => field(2, &field(4, &[required, text(2, place), text(4, name), text(5, kind)].concat())),
        _ => field(2, &field(3, &[required, text(2, place), text(4, name), text(6, kind)].concat())),
    };
    field(1, &found)
}

fn schema(schema: &Value) -> Vec<u8> {
    let mut out = [text(1, &schema["$ref"]), text(2, &schema["format"]), text(4, &schema["description"])].concat();
    out.extend(list(&schema["required"]).flat_map(|name| text(19, name)));
    if let Some(values) = schema.get("additionalProperties") {
        out.extend(field(21, &field(1, &self::schema(values))));
    }
    if schema["type"].is_string() {
        out.extend(field(22, &text(1, &schema["type"])));
    }
    if let Some(items) = schema.get("items") {
        out.extend(field(23, &field(1, &self::schema(items))));
    }
    if let Some(properties) = schema.get("properties") {
        out.extend(field(25, &named_schemas(properties)));
    }
    out.extend(extensions(31, schema));
    out
}

fn named_schemas(schemas: &Value) -> Vec<u8> {
    entries(schemas).flat_map(|(name, each)| field(1, &named(name, &schema(each)))).collect()
}

/// A name and what it stands for: how this message spells maps.
fn named(name: &str, value: &[u8]) -> Vec<u8> {
    [field(1, name.as_bytes()), field(2, value)].concat()
}

/// Everything that begins with `x-`, as YAML, which JSON is.
fn extensions(number: u64, of: &Value) -> Vec<u8> {
    let found = entries(of).filter(|(name, _)| name.starts_with("x-"));
    found.flat_map(|(name, value)| field(number, &named(name, &field(2, value.to_string().as_bytes())))).collect()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(number: u64, value: &Value) -> Vec<u8> {
    value.as_str().map_or_else(Vec::new, |text| field(number, text.as_bytes()))
}

fn flag(number: u64, value: &Value) -> Vec<u8> {
    if value == &Value::Bool(true) { [varint(number << 3), vec![1]].concat() } else { Vec::new() }
}

/// One length-delimited field.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let length = u64::try_from(bytes.len()).expect("a length fits");
    [varint(number << 3 | 2), varint(length), bytes.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return out;
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_have_their_numbers_and_lengths() {
        assert_eq!(field(1, b"2.0"), [0x0a, 3, b'2', b'.', b'0']);
        assert_eq!(field(31, &[7; 200])[..4], [0xfa, 0x01, 0xc8, 0x01]);
        let small = json!({
            "swagger": "2.0", "info": { "title": "T", "version": "V" }, "paths": {},
            "definitions": { "A": { "type": "object", "x-k": [1] } },
        });
        let schema =
            [&[0xb2, 0x01, 8, 0x0a, 6][..], b"object", &[0xfa, 0x01, 12, 0x0a, 3], b"x-k", &[0x12, 5, 0x12, 3], b"[1]"]
                .concat();
        assert_eq!(self::schema(&small["definitions"]["A"]), schema);
        let bytes = protobuf(&small);
        assert_eq!(bytes[..11], [&[0x0a, 3][..], b"2.0", &[0x12, 6, 0x0a, 1], b"T", &[0x12]].concat());
        assert!(bytes.ends_with(&schema));
    }
}
