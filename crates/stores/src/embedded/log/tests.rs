//! The log on plain files: turning over, going on, and telling a torn end from damage.

use std::collections::BTreeMap;
use std::fs;

use tempfile::TempDir;

use super::*;

const SMALL: Size = Size(8 << 10);

/// What each key holds in the end, by what is needed of the log.
fn held(folder: &Path) -> Result<BTreeMap<Vec<u8>, Option<Vec<u8>>>, ReadError> {
    let read = read(folder)?;
    let pair = |value: frame::Value<'_>| (value.key.to_vec(), value.bytes.map(<[u8]>::to_vec));
    Ok(read.values().map(pair).collect())
}

fn damage(folder: &Path) -> String {
    match held(folder) {
        Err(ReadError::Damaged(what)) => what,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was read"),
    }
}

fn made() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    Log::make(folder.path(), SMALL, |frame| frame.add(Space::Meta, b"made", Some(b"1"))).unwrap();
    folder
}

fn go_on(folder: &Path) -> (Log, Mark) {
    let read = read(folder).unwrap();
    let fill = |frame: &mut Frame| frame.add(Space::Meta, b"opened", Some(b"1"));
    Log::go_on(folder, SMALL, &read, fill).unwrap()
}

fn put(log: &mut Log, key: u32, value: &[u8]) -> u64 {
    let fill = |frame: &mut Frame| frame.add(Space::Slots, &key.to_be_bytes(), Some(value));
    log.write(filled(fill)).unwrap().number
}

/// Does the work beside writing until there is nothing to do; what is taken over counts as being in
/// the tables.
fn keep_up(folder: &Path, log: &Log, mark: &mut Mark) {
    log.yard.stop();
    loop {
        match log.yard.work() {
            Work::Make(bytes) => drop(log.yard.put(Blank::make(folder, bytes).unwrap())),
            Work::TakeOver(filled, asked) => {
                if let Some(last) = filled.last() {
                    mark.set(last.next).unwrap();
                }
                for filled in filled {
                    if let Some(other) = log.yard.put(filled.blank) {
                        other.discard().unwrap();
                    }
                }
                log.yard.done(asked);
            }
            Work::Stop => return,
        }
    }
}

#[test]
fn what_was_written_since_the_mark_is_read_and_nothing_else() {
    let folder = made();
    let path = folder.path();
    assert_eq!(held(path).unwrap().len(), 1);
    let (mut log, mut mark) = go_on(path);
    assert_eq!(held(path).unwrap(), [(b"opened".to_vec(), Some(b"1".to_vec()))].into());
    put(&mut log, 1, b"a");
    put(&mut log, 2, b"b");
    put(&mut log, 1, b"c");
    let remove = |frame: &mut Frame| frame.add(Space::Slots, &2_u32.to_be_bytes(), None);
    log.write(filled(remove)).unwrap();
    let found = held(path).unwrap();
    assert_eq!(found[&1_u32.to_be_bytes().to_vec()], Some(b"c".to_vec()));
    assert_eq!(found[&2_u32.to_be_bytes().to_vec()], None);
    mark.set(log.end()).unwrap();
    assert_eq!(held(path).unwrap(), BTreeMap::new());
    assert_eq!(read(path).unwrap().closed_at(), log.end());
}

/// K12: however often files are used again, what is needed is there, and never what was before.
#[test]
fn k12_files_are_used_again_and_no_old_frame_passes_for_a_new_one() {
    let folder = made();
    let path = folder.path();
    let (mut log, mut mark) = go_on(path);
    for key in 0..2_000 {
        put(&mut log, key, &[u8::try_from(key % 251).unwrap(); 700]);
        let from = mark::read(path).unwrap().unwrap().from;
        if key % 7 == 0 {
            let found = held(path).unwrap();
            let newest = found.keys().filter(|key| key.len() == 4).max().unwrap();
            assert_eq!(*newest, key.to_be_bytes());
            assert_eq!(from.frame + found.len() as u64, log.end().frame);
        }
        keep_up(path, &log, &mut mark);
    }
    assert!(segment::files(path).unwrap().len() <= 3, "{:?}", segment::files(path));
    let (again, _mark) = go_on(path);
    assert_eq!(again.end().frame, log.end().frame + 1);
}

/// A frame that fits no file gets one of its own.
#[test]
fn a_frame_that_is_larger_than_a_file_is_written_all_the_same() {
    let folder = made();
    let (mut log, mut mark) = go_on(folder.path());
    put(&mut log, 1, b"a");
    put(&mut log, 2, &vec![7; 100_000]);
    put(&mut log, 3, b"c");
    let found = held(folder.path()).unwrap();
    assert_eq!(found[&2_u32.to_be_bytes().to_vec()], Some(vec![7; 100_000]));
    keep_up(folder.path(), &log, &mut mark);
    put(&mut log, 4, b"d");
    assert_eq!(held(folder.path()).unwrap().len(), 2, "what came behind the large one");
}

/// C8: the last frame may be torn; any other one that is not whole is damage, whatever is wrong.
#[test]
fn c8_a_torn_end_is_told_from_damage_at_every_byte() {
    let folder = made();
    let path = folder.path();
    let (mut log, _mark) = go_on(path);
    for key in 0..4 {
        put(&mut log, key, &[9; 600]);
    }
    let file = path.join("1.seg");
    let whole = fs::read(&file).unwrap();
    // The frame of the opening takes one unit, each of the others two.
    let (first, last, end) = (512, 512 + 512 + 3 * 1024, 512 + 512 + 4 * 1024);
    for at in (first..end).step_by(37) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&file, &bytes).unwrap();
        let read = read(path);
        let is_filling = bytes[at - at % 512..][..512] != whole[at - at % 512..][..512]
            && read.as_ref().is_ok_and(|read| read.frames() == 5);
        if at < last && !is_filling {
            assert!(damage(path).contains("not whole"), "byte {at}");
        } else if at >= last {
            let read = read.unwrap();
            assert!(read.frames() == 4 || is_filling, "byte {at}");
        }
    }
    // Cut off anywhere, it is as if the rest had not been written yet.
    for cut in (last..end).step_by(101) {
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        fs::write(&file, &bytes).unwrap();
        assert!(read(path).unwrap().frames() >= 4, "cut at {cut}");
    }
}

/// C8: what was torn off is written over, and is not found again by the next opening.
#[test]
fn c8_after_a_torn_end_the_log_goes_on_in_another_file() {
    let folder = made();
    let path = folder.path();
    let (mut log, _mark) = go_on(path);
    put(&mut log, 1, b"a");
    put(&mut log, 2, &[9; 600]);
    let mut bytes = fs::read(path.join("1.seg")).unwrap();
    let torn = 512 + 512 + 512 + 600;
    bytes[torn..torn + 8].fill(0);
    fs::write(path.join("1.seg"), &bytes).unwrap();
    assert!(read(path).unwrap().torn.is_some());
    let (mut log, _mark) = go_on(path);
    put(&mut log, 3, b"c");
    let found = held(path).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(read(path).unwrap().torn.is_none());
}

/// C8: a file, a mark or a folder that is gone is missed.
#[test]
fn c8_whatever_of_a_log_is_gone_is_missed() {
    let folder = made();
    let path = folder.path();
    let (mut log, _mark) = go_on(path);
    for key in 0..12 {
        if log.current.left() < 1_100 {
            log.yard.put(Blank::make(path, SMALL.0).unwrap());
        }
        put(&mut log, key, &[9; 900]);
    }
    assert!(read(path).unwrap().frames() > 12);
    let used = read(path).unwrap().used;
    assert!(used.len() >= 2);
    for (at, file) in used.iter().enumerate() {
        let whole = fs::read(file).unwrap();
        // Without a next file that says so, nobody knows of the last one.
        if at + 1 < used.len() {
            fs::remove_file(file).unwrap();
            assert!(damage(path).contains("is gone"), "{}", file.display());
        }
        let mut headless = whole.clone();
        headless[..512].fill(0);
        fs::write(file, headless).unwrap();
        assert!(damage(path).contains("the head of"), "{}", file.display());
        fs::write(file, &whole[..whole.len() - 512]).unwrap();
        assert!(damage(path).contains("is cut off"), "{}", file.display());
        fs::write(file, whole).unwrap();
    }
    fs::remove_file(path.join("mark")).unwrap();
    assert!(damage(path).contains("mark"));
    assert!(damage(&path.join("nowhere")).contains("its log is gone"));
}

/// Whoever fills values with what looks like frames can neither forge one nor hide one.
#[test]
fn values_that_look_like_frames_change_nothing() {
    let folder = made();
    let path = folder.path();
    let (mut log, _mark) = go_on(path);
    // A head at every place where one could lie.
    let head = [b"OTF1".as_slice(), &[0, 0, 1, 0], &5_u64.to_be_bytes(), &[0; 16]].concat();
    put(&mut log, 1, &head.repeat(64));
    let mut bytes = fs::read(path.join("1.seg")).unwrap();
    bytes[1_024 + 2_000] ^= 1;
    fs::write(path.join("1.seg"), &bytes).unwrap();
    assert_eq!(read(path).unwrap().frames(), 1, "a torn end, whatever it holds");
}

/// C8: a head that a power cut took away with the one frame behind it was nobody's.
#[test]
fn c8_a_first_frame_without_its_head_is_a_torn_beginning() {
    let folder = made();
    let path = folder.path();
    let (mut log, _mark) = go_on(path);
    log.yard.put(Blank::make(path, SMALL.0).unwrap());
    let before = log.end().segment;
    while log.end().segment == before {
        put(&mut log, 1, &[9; 900]);
    }
    let used = read(path).unwrap().used;
    let newest = used.last().unwrap();
    let mut bytes = fs::read(newest).unwrap();
    bytes[..512].fill(0);
    fs::write(newest, &bytes).unwrap();
    assert_eq!(read(path).unwrap().used.len(), used.len() - 1);
    put(&mut log, 2, b"b");
    let mut bytes = fs::read(newest).unwrap();
    bytes[..512].fill(0);
    fs::write(newest, &bytes).unwrap();
    assert!(damage(path).contains("the head of"));
}

/// A first frame that is larger than a first file gets one that it fits.
#[test]
fn a_first_frame_is_never_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let large = vec![7; 100_000];
    let fill = |frame: &mut Frame| frame.add(Space::Meta, b"ring", Some(&large));
    Log::make(folder.path(), SMALL, fill).unwrap();
    assert_eq!(held(folder.path()).unwrap().len(), 1);
    let read = read(folder.path()).unwrap();
    assert_eq!(read.end.segment, 2);
    let (log, _mark) = Log::go_on(folder.path(), SMALL, &read, fill).unwrap();
    assert_eq!(log.end().segment, 2);
}
