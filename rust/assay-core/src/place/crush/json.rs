//! The JSON form of a crush map: `ceph osd crush dump` and `crushtool --dump` (upstream `CrushWrapper::dump`). Weights in it
//! are exact, unlike those of the text form. Straw lengths are not in it; they are computed as the map's
//! `straw_calc_version` says. Verified against dumps of crushtool 16.2.15.

use super::map::{bad, Alg, Bucket, ChooseArg, ChooseArgs, CrushMap, Error, Rule, Step};
use serde_json::Value;
use std::collections::BTreeMap;

/// Parses the JSON form.
pub fn parse(text: &str) -> Result<CrushMap, Error> {
    let dump: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(e) => return bad!("line {}: not JSON: {e}", e.line()),
    };
    let mut map = CrushMap::empty();
    let mut type_ids = BTreeMap::new();
    for kind in list(&dump, "types", "the dump")? {
        let id = int(kind, "type_id", "a type")?;
        let name = text_of(kind, "name", "a type")?;
        type_ids.insert(name.clone(), id);
        map.types.insert(id, name);
    }
    for device in list(&dump, "devices", "the dump")? {
        let id = int(device, "id", "a device")?;
        map.names.insert(id, text_of(device, "name", "a device")?);
        if let Some(class) = device.get("class").and_then(Value::as_str) {
            let class = class_id(&mut map, class);
            map.item_classes.insert(id, class);
        }
    }
    read_tunables(&mut map, &dump)?;
    for bucket in list(&dump, "buckets", "the dump")? {
        add_bucket(&mut map, bucket)?;
    }
    link_shadows(&mut map);
    for rule in list(&dump, "rules", "the dump")? {
        let rule = read_rule(rule, &type_ids)?;
        map.add_rule(rule)?;
    }
    if let Some(Value::Object(sets)) = dump.get("choose_args") {
        for (pool, args) in sets {
            let Ok(pool) = pool.parse() else {
                return bad!("choose_args {pool:?}: not a pool id");
            };
            map.choose_args.insert(pool, read_choose_args(args)?);
        }
    }
    map.max_devices = map.count_devices();
    map.check()?;
    Ok(map)
}

fn list<'a>(value: &'a Value, key: &str, whose: &str) -> Result<&'a [Value], Error> {
    match value.get(key) {
        Some(Value::Array(items)) => Ok(items),
        _ => bad!("{whose} has no list {key:?} (is this `ceph osd crush dump`?)"),
    }
}

fn int(value: &Value, key: &str, whose: &str) -> Result<i32, Error> {
    let number = value
        .get(key)
        .and_then(Value::as_i64)
        .and_then(|n| i32::try_from(n).ok());
    number.map_or_else(
        || bad!("{whose} has no number {key:?}: {}", brief(value)),
        Ok,
    )
}

fn weight_of(value: &Value, whose: &str) -> Result<u32, Error> {
    let number = value
        .get("weight")
        .and_then(Value::as_u64)
        .and_then(|n| u32::try_from(n).ok());
    number.map_or_else(|| bad!("{whose} has no weight: {}", brief(value)), Ok)
}

fn text_of(value: &Value, key: &str, whose: &str) -> Result<String, Error> {
    let text = value.get(key).and_then(Value::as_str).map(str::to_owned);
    text.map_or_else(|| bad!("{whose} has no text {key:?}: {}", brief(value)), Ok)
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

fn class_id(map: &mut CrushMap, name: &str) -> i32 {
    if let Some((&id, _)) = map.class_names.iter().find(|(_, n)| *n == name) {
        return id;
    }
    let id = map.class_names.len() as i32;
    map.class_names.insert(id, name.to_owned());
    id
}

fn read_tunables(map: &mut CrushMap, dump: &Value) -> Result<(), Error> {
    let Some(given) = dump.get("tunables") else {
        return bad!("the dump has no tunables");
    };
    let number = |key: &str, missing: u32| {
        given
            .get(key)
            .and_then(Value::as_u64)
            .map_or(missing, |n| n.min(u64::from(u32::MAX)) as u32)
    };
    let small = |key: &str| number(key, 0).min(255) as u8;
    let t = &mut map.tunables;
    t.choose_local_tries = number("choose_local_tries", t.choose_local_tries);
    t.choose_local_fallback_tries =
        number("choose_local_fallback_tries", t.choose_local_fallback_tries);
    t.choose_total_tries = number("choose_total_tries", t.choose_total_tries);
    t.chooseleaf_descend_once = number("chooseleaf_descend_once", 0);
    t.chooseleaf_vary_r = small("chooseleaf_vary_r");
    t.chooseleaf_stable = small("chooseleaf_stable");
    t.straw_calc_version = small("straw_calc_version");
    Ok(())
}

fn add_bucket(map: &mut CrushMap, value: &Value) -> Result<(), Error> {
    let id = int(value, "id", "a bucket")?;
    let whose = format!("bucket {id}");
    let name = text_of(value, "name", &whose)?;
    let Ok(type_id) = u16::try_from(int(value, "type_id", &whose)?) else {
        return bad!("{whose} has a type beyond 65535");
    };
    let alg_name = text_of(value, "alg", &whose)?;
    let Some(alg) = Alg::from_name(&alg_name) else {
        return bad!("{whose} has the unknown algorithm {alg_name:?}");
    };
    let entries = list(value, "items", &whose)?;
    let items = entries
        .iter()
        .map(|e| int(e, "id", &whose))
        .collect::<Result<Vec<_>, _>>()?;
    let weights = entries
        .iter()
        .map(|e| weight_of(e, &whose))
        .collect::<Result<Vec<_>, _>>()?;
    let bucket = Bucket::new(
        id,
        type_id,
        alg,
        items,
        weights,
        map.tunables.straw_calc_version,
    )?;
    map.add_bucket(bucket)?;
    map.names.insert(id, name);
    Ok(())
}

/// Shadow trees are told by their names only: `default~ssd` holds what of `default` is of class `ssd`.
fn link_shadows(map: &mut CrushMap) {
    let by_name: BTreeMap<String, i32> = map.names.iter().map(|(&id, n)| (n.clone(), id)).collect();
    for (name, &shadow) in &by_name {
        let Some((original, class)) = name.rsplit_once('~').filter(|_| shadow < 0) else {
            continue;
        };
        if let Some(&original) = by_name.get(original) {
            let class = class_id(map, class);
            map.item_classes.insert(shadow, class);
            map.class_buckets
                .entry(original)
                .or_default()
                .insert(class, shadow);
        }
    }
}

fn read_rule(value: &Value, type_ids: &BTreeMap<String, i32>) -> Result<Rule, Error> {
    let id = int(value, "rule_id", "a rule")?;
    let whose = format!("rule {id}");
    let small =
        |key: &str, missing: i32| int(value, key, &whose).unwrap_or(missing).clamp(0, 255) as u8;
    let mut steps = Vec::new();
    for step in list(value, "steps", &whose)? {
        if let Some(step) = read_step(step, type_ids, &whose)? {
            steps.push(step);
        }
    }
    let Ok(number) = u32::try_from(id) else {
        return bad!("{whose}: the id is negative");
    };
    Ok(Rule {
        id: number,
        name: text_of(value, "rule_name", &whose)?,
        kind: small("type", 1),
        min_size: small("min_size", 1),
        max_size: small("max_size", 100),
        steps,
    })
}

fn read_step(
    step: &Value,
    type_ids: &BTreeMap<String, i32>,
    whose: &str,
) -> Result<Option<Step>, Error> {
    if step.get("opcode").is_some() {
        // Steps that the dump knows no name for.
        let op = int(step, "opcode", whose)?;
        let known = Step::from_op(
            op as u32,
            int(step, "arg1", whose)?,
            int(step, "arg2", whose)?,
        );
        return known.map_or_else(
            || bad!("{whose} has step {op}, which is not supported"),
            |s| Ok(Some(s)),
        );
    }
    let op = text_of(step, "op", whose)?;
    let number = || int(step, "num", whose);
    if let Some((choose, mode)) = op.split_once('_').filter(|(c, _)| c.starts_with("choose")) {
        let kind = text_of(step, "type", whose)?;
        let Some(&type_id) = type_ids.get(&kind) else {
            return bad!("{whose} chooses the unknown type {kind:?}");
        };
        let known = matches!(
            (choose, mode),
            ("choose" | "chooseleaf", "firstn" | "indep")
        );
        if !known {
            return bad!("{whose} has step {op:?}, which is not supported");
        }
        let (firstn, leaf) = (mode == "firstn", choose == "chooseleaf");
        return Ok(Some(Step::Choose {
            firstn,
            leaf,
            count: number()?,
            type_id,
        }));
    }
    Ok(Some(match op.as_str() {
        "noop" => return Ok(None),
        "take" => Step::Take(int(step, "item", whose)?),
        "emit" => Step::Emit,
        "set_choose_tries" => Step::ChooseTries(number()?),
        "set_chooseleaf_tries" => Step::ChooseleafTries(number()?),
        "set_choose_local_tries" => Step::LocalTries(number()?),
        "set_choose_local_fallback_tries" => Step::LocalFallbackTries(number()?),
        "set_chooseleaf_vary_r" => Step::VaryR(number()?),
        "set_chooseleaf_stable" => Step::Stable(number()?),
        other => return bad!("{whose} has step {other:?}, which is not supported"),
    }))
}

fn read_choose_args(value: &Value) -> Result<ChooseArgs, Error> {
    let Value::Array(entries) = value else {
        return bad!("choose_args are not a list: {}", brief(value));
    };
    let mut args = ChooseArgs::new();
    for entry in entries {
        let id = int(entry, "bucket_id", "an entry of choose_args")?;
        let mut arg = ChooseArg::default();
        if entry.get("weight_set").is_some() {
            for row in list(entry, "weight_set", "an entry of choose_args")? {
                arg.weight_set.push(fixed_points(row, id)?);
            }
        }
        if entry.get("ids").is_some() {
            for item in list(entry, "ids", "an entry of choose_args")? {
                let Some(item) = item.as_i64().and_then(|n| i32::try_from(n).ok()) else {
                    return bad!("choose_args of bucket {id}: {} is not an id", brief(item));
                };
                arg.ids.push(item);
            }
        }
        args.insert(id, arg);
    }
    Ok(args)
}

/// A row of weights, which the dump gives as decimals, back in 16.16.
fn fixed_points(row: &Value, bucket: i32) -> Result<Vec<u32>, Error> {
    let weights = row.as_array().map_or(&[][..], Vec::as_slice);
    weights
        .iter()
        .map(|w| match w.as_f64() {
            Some(w) if (0.0..65_536.0).contains(&w) => Ok((w * 65_536.0).round() as u32),
            _ => bad!(
                "choose_args of bucket {bucket}: {} is not a weight",
                brief(w)
            ),
        })
        .collect()
}
