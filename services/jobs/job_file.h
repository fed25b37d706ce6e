// Files whose content survives the loss of every process and of power. Any thread, but each object
// on one at a time.
//
// Errors name the path. RESOURCE_EXHAUSTED: the disk is full. UNAVAILABLE: the disk fails
// otherwise, or the file is not there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services {

// Written under a temporary path, and then put in its place: nobody sees a part of it.
class NewFile {
 public:
  static absl::StatusOr<std::unique_ptr<NewFile>> Create(std::string temporary_path);
  ~NewFile();  // removes it, unless it was published
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status Append(std::string_view bytes);
  // The content survives from here on. Nothing may be appended any more.
  absl::Status Sync();
  // At `path`, of which `folder` is the folder. Replaces what is there. REQUIRES Sync before.
  absl::Status Publish(const std::string& folder, const std::string& path);

  uint64_t bytes() const { return bytes_; }

 private:
  NewFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status Flush();

  const std::string path_;
  int fd_;
  std::string waiting_;  // appended and not written
  uint64_t bytes_ = 0;
  bool published_ = false;
};

class FileReader {
 public:
  static absl::StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // At most `bytes` from `at` on; fewer only at the end.
  absl::StatusOr<std::string> Read(uint64_t at, size_t bytes) const;

 private:
  FileReader(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

// The folder's entries survive from here on.
absl::Status SyncFolder(const std::string& folder);
// Creates it, and the folders above it.
absl::Status MakeFolder(const std::string& folder);

}  // namespace skein::services
