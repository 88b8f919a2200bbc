//! A fileset as its parts see it: sizes, directories and content, all given by numbers.

use super::content::Content;

/// Which files there are. File `i` is `directories[directory_of[i]]/f<i in eight hexadecimal digits>`.
#[derive(Debug, Clone)]
pub struct Fileset {
    /// Root directory, existing.
    pub root: Vec<u8>,
    /// Directories relative to the root, parents before their children; "" is the root.
    pub directories: Vec<String>,
    /// Index into `directories` of each file.
    pub directory_of: Vec<u64>,
    /// Bytes of each file.
    pub sizes: Vec<u64>,
    /// What the files hold.
    pub content: Content,
    /// Seed of the content.
    pub seed: u64,
}

impl Fileset {
    /// Checks that the parts fit together; the message says what does not.
    pub fn check(&self) -> Result<(), String> {
        if self.sizes.len() != self.directory_of.len() {
            return Err(format!(
                "{} sizes but {} directory numbers",
                self.sizes.len(),
                self.directory_of.len()
            ));
        }
        if let Some(bad) = self
            .directory_of
            .iter()
            .find(|&&d| d >= self.directories.len() as u64)
        {
            return Err(format!(
                "directory number {bad} of {}",
                self.directories.len()
            ));
        }
        if self.root.contains(&0) || self.directories.iter().any(|d| d.contains('\0')) {
            return Err("a path holds a NUL byte".to_owned());
        }
        Ok(())
    }

    /// Path of a file relative to the root.
    pub fn name(&self, file: usize) -> String {
        let directory = &self.directories[self.directory_of[file] as usize];
        if directory.is_empty() {
            format!("f{file:08x}")
        } else {
            format!("{directory}/f{file:08x}")
        }
    }

    /// Checks file numbers that come from outside.
    pub fn check_files(&self, files: &[u64]) -> Result<(), String> {
        match files.iter().find(|&&f| f >= self.sizes.len() as u64) {
            Some(bad) => Err(format!("file number {bad} of {}", self.sizes.len())),
            None => Ok(()),
        }
    }
}
