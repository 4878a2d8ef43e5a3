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
#include <span>
#include <string>

#include "csrc/journal.h"

namespace agentq::bindings {

struct FileError {
  int code;  // errno
  std::string path;
};

class File {
 public:
  File(std::string path, int flags) : path_(std::move(path)), handle_(::open(path_.c_str(), flags | O_CLOEXEC, 0666)) {
    if (handle_ < 0) fail();
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(handle_); }

  std::uint64_t size() const {
    struct stat found;
    if (::fstat(handle_, &found) != 0) fail();
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
  void write(std::span<const char> bytes) const {
    while (!bytes.empty()) {
      const ssize_t put = ::write(handle_, bytes.data(), bytes.size());
      if (put < 0 && errno != EINTR) fail();
      bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(put, 0)));
    }
  }
  void go_to(std::uint64_t offset) const {
    if (::lseek(handle_, static_cast<off_t>(offset), SEEK_SET) < 0) fail();
  }
  void sync() const {
    if (::fsync(handle_) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const { throw FileError{errno, path_}; }

  std::string path_;
  int handle_;
};

/// Is the file what the journal says it wrote or read there: as long, and with the same end?
inline bool is_as_left(const std::string& path, const Journal& journal) {
  if (journal.size() == 0) return false;
  try {
    const File file(path, O_RDONLY);
    std::uint64_t seal = 0;
    if (file.size() != journal.size()) return false;
    const std::string end = file.read(journal.size() - sizeof(seal), sizeof(seal));
    if (end.size() == sizeof(seal)) std::memcpy(&seal, end.data(), sizeof(seal));
    return seal == journal.seal();
  } catch (const FileError&) {
    return false;
  }
}

/// What changed, behind what is there; else everything, beside and renamed, so that a kill leaves the old file or the new.
inline void save_to(const std::string& path, const Forest& forest, Journal& journal) {
  const Journal::Plan plan = journal.plan(forest, is_as_left(path, journal));
  if (plan.is_empty) return;
  const std::string beside = path + ".partial", at = plan.is_whole ? beside : path;
  const auto slash = path.rfind('/');
  try {
    const File file(at, plan.is_whole ? O_WRONLY | O_CREAT | O_TRUNC : O_WRONLY);
    if (!plan.is_whole) file.go_to(journal.size());
    journal.write(forest, plan, [&](std::span<const char> bytes) { file.write(bytes); });
    file.sync();
    if (!plan.is_whole) return;
    if (std::rename(beside.c_str(), path.c_str()) != 0) throw FileError{errno, path};
  } catch (...) {
    journal = Journal();  // what the file holds by now is not known: the next save writes everything
    if (plan.is_whole) ::unlink(beside.c_str());
    throw;
  }
  try {  // the new name too; not every file system can
    File(slash == std::string::npos ? "." : path.substr(0, slash + 1), O_RDONLY | O_DIRECTORY).sync();
  } catch (const FileError&) {
  }
}

inline Forest load_from(const std::string& path, Journal& journal) {
  const File file(path, O_RDONLY);
  return journal.read(file.read(0, file.size()));
}

}  // namespace agentq::bindings
