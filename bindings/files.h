// Files of bytes, without Python: what goes wrong is an OSError with the file's name.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>

#include "csrc/journal.h"
#include "csrc/snapshot.h"

namespace agentq::bindings {

struct FileError {
  int code;  // errno
  std::string path;
  std::string message = {};  // empty: what the system says of the code
};

/// @throws FileError if a file of that mode is no regular one.
inline void check_regular(mode_t mode, const std::string& path) {
  if (S_ISREG(mode)) return;
  const char* kind = S_ISDIR(mode) ? "a directory" : S_ISLNK(mode) ? "a symbolic link" : S_ISFIFO(mode) ? "a pipe"
                     : S_ISSOCK(mode) ? "a socket" : "a device";
  throw FileError{S_ISDIR(mode) ? EISDIR : EINVAL, path, std::string("a forest must be in a regular file; got ") + kind};
}

class File {
 public:
  /// Waits for nobody: a pipe opens at once.
  File(std::string path, int flags)
      : path_(std::move(path)), handle_(::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666)) {
    if (handle_ < 0) fail();
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(handle_); }

  const std::string& path() const { return path_; }
  /// @throws FileError if it is no regular file.
  std::uint64_t size() const {
    struct stat found;
    if (::fstat(handle_, &found) != 0) fail();
    check_regular(found.st_mode, path_);
    return static_cast<std::uint64_t>(found.st_size);
  }
  /// Up to `size` bytes from `offset` on.
  std::string read(std::uint64_t offset, std::uint64_t size) const {
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
      const ssize_t got = ::pread(handle_, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno != EINTR) fail();
      if (got == 0) break;
      done += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    }
    bytes.resize(done);
    return bytes;
  }
  /// Behind `offset`, which moves on.
  void write(std::span<const char> bytes, std::uint64_t& offset) const {
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(handle_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (put < 0 && errno != EINTR) fail();
      const auto done = static_cast<std::size_t>(std::max<ssize_t>(put, 0));
      bytes = bytes.subspan(done);
      offset += done;
    }
  }
  void cut(std::uint64_t size) const noexcept {
    if (::ftruncate(handle_, static_cast<off_t>(size)) != 0) errno = 0;  // what is behind it is left out by whoever reads
  }
  void sync() const {
    if (::fsync(handle_) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const { throw FileError{errno, path_}; }

  std::string path_;
  int handle_;
};

/// The file if it is what the journal says it wrote or read there: as long, and with the same end.
inline std::unique_ptr<File> open_as_left(const std::string& path, const Journal& journal) {
  if (journal.size() == 0) return nullptr;
  try {
    auto file = std::make_unique<File>(path, O_RDWR | O_NOFOLLOW);
    std::uint64_t seal = 0;
    if (file->size() != journal.size()) return nullptr;
    const std::string end = file->read(journal.size() - sizeof(seal), sizeof(seal));
    if (end.size() == sizeof(seal)) std::memcpy(&seal, end.data(), sizeof(seal));
    return seal == journal.seal() ? std::move(file) : nullptr;
  } catch (const FileError&) {
    return nullptr;
  }
}

/// A new file beside that one, under a name that nobody else has.
inline std::unique_ptr<File> create_beside(const std::string& path) {
  std::random_device random;
  while (true) {
    char number[16];
    std::snprintf(number, sizeof(number), ".%08x", random());
    try {
      return std::make_unique<File>(path + number + ".partial", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    } catch (const FileError& error) {
      if (error.code != EEXIST) throw;
    }
  }
}

/// A record behind the others. Its first bytes come last, when the others are on the disk: until then they are zeros, and
/// after a power cut the file still reads as it was, whatever of the record has got there.
inline void append(const File& file, const Forest& forest, const Journal::Plan& plan, Journal& journal) {
  constexpr std::array<char, kSnapshotMagic.size()> kNotYet = {};
  std::uint64_t begin = journal.size(), at = begin;
  try {
    journal.write(forest, plan, [&](std::span<const char> bytes) {
      if (at == begin) file.write(kNotYet, at), bytes = bytes.subspan(kNotYet.size());
      file.write(bytes, at);
    });
    file.sync();
  } catch (...) {
    file.cut(begin);
    throw;
  }
  file.write(kSnapshotMagic, begin);
  file.sync();
}

/// Makes a rename last. Some file systems cannot, and some directories may not be read: then it is as lasting as they are.
inline void sync_directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  try {
    File(slash == std::string::npos ? "." : path.substr(0, slash + 1), O_RDONLY | O_DIRECTORY).sync();
  } catch (const FileError& error) {
    if (error.code != EINVAL && error.code != EACCES) throw;
  }
}

/// What changed, behind what is there; else everything, beside and renamed: a kill or a power cut leaves the old or the new.
inline void save_to(const std::string& path, const Forest& forest, Journal& journal) {
  struct stat found;
  if (::lstat(path.c_str(), &found) == 0) check_regular(found.st_mode, path);
  const std::unique_ptr<File> left = open_as_left(path, journal);
  const Journal::Plan plan = journal.plan(forest, left != nullptr);
  if (plan.is_empty) return;
  std::unique_ptr<File> beside;
  try {
    if (!plan.is_whole) return append(*left, forest, plan, journal);
    beside = create_beside(path);
    std::uint64_t at = 0;
    journal.write(forest, plan, [&](std::span<const char> bytes) { beside->write(bytes, at); });
    beside->sync();
    if (std::rename(beside->path().c_str(), path.c_str()) != 0) throw FileError{errno, path};
    sync_directory_of(path);
  } catch (...) {
    journal = Journal();  // what the file holds by now is not known: the next save writes everything
    if (beside) ::unlink(beside->path().c_str());
    throw;
  }
}

inline Forest load_from(const std::string& path, Journal& journal) {
  const File file(path, O_RDONLY);
  return journal.read(file.read(0, file.size()));
}

}  // namespace agentq::bindings
