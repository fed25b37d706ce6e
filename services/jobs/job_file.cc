#include "services/jobs/job_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

constexpr size_t kWriteBytes = size_t{256} << 10;

absl::Status Failed(const char* what, const std::string& path) {
  const int error = errno;
  std::string text = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NewFile>> NewFile::Create(std::string temporary_path) {
  const int fd = open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  if (fd < 0) return Failed("create", temporary_path);
  return std::unique_ptr<NewFile>(new NewFile(std::move(temporary_path), fd));
}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!published_) unlink(path_.c_str());
}

absl::Status NewFile::Append(std::string_view bytes) {
  waiting_.append(bytes);
  bytes_ += bytes.size();
  return waiting_.size() < kWriteBytes ? absl::OkStatus() : Flush();
}

absl::Status NewFile::Flush() {
  std::string_view left = waiting_;
  while (!left.empty()) {
    const ssize_t written = write(fd_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path_);
    left.remove_prefix(static_cast<size_t>(written));
  }
  waiting_.clear();
  return absl::OkStatus();
}

absl::Status NewFile::Sync() {
  if (absl::Status status = Flush(); !status.ok()) return status;
  if (fsync(fd_) != 0) return Failed("sync", path_);
  const bool closed = close(std::exchange(fd_, -1)) == 0;
  return closed ? absl::OkStatus() : Failed("close", path_);
}

absl::Status NewFile::Publish(const std::string& folder, const std::string& path) {
  if (rename(path_.c_str(), path.c_str()) != 0) return Failed("create", path);
  published_ = true;
  return SyncFolder(folder);
}

absl::StatusOr<std::unique_ptr<FileReader>> FileReader::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("read", path);
  return std::unique_ptr<FileReader>(new FileReader(path, fd));
}

FileReader::~FileReader() { close(fd_); }

absl::StatusOr<std::string> FileReader::Read(uint64_t at, size_t bytes) const {
  std::string content(bytes, '\0');
  size_t got = 0;
  while (got < bytes) {
    const ssize_t n = pread(fd_, content.data() + got, bytes - got, static_cast<off_t>(at + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", path_);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  content.resize(got);
  return content;
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("open", folder);
  absl::Status status = fsync(fd) == 0 ? absl::OkStatus() : Failed("sync", folder);
  close(fd);
  return status;
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  errno = error.value();
  return Failed("create the folder", folder);
}

}  // namespace skein::services
