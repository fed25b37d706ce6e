#include "services/orchestrator/generation_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"
#include "services/base/file.h"
#include "services/log/log.h"

namespace skein::services {
namespace {

std::string PathIn(const std::string& folder) { return folder + "/generation"; }

absl::Status Failed(const std::string& what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("--state-dir: cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// On the disk when this returns.
absl::Status WriteSynced(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Failed("open", path);
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool synced = written && fsync(fd) == 0;
  absl::Status status = synced ? absl::OkStatus() : Failed("write", path);
  close(fd);
  return status;
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("open", folder);
  absl::Status status = fsync(fd) == 0 ? absl::OkStatus() : Failed("sync", folder);
  close(fd);
  return status;
}

}  // namespace

absl::StatusOr<uint64_t> NextGeneration(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("--state-dir: cannot create ", folder, ": ", error.message()));
  }
  const std::string path = PathIn(folder);
  uint64_t last = 0;
  if (std::filesystem::exists(path, error)) {
    const auto text = ReadFile(path);
    if (!text.ok())
      return absl::UnavailableError(absl::StrCat("--state-dir: ", text.status().message()));
    const bool number = absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &last);
    if (!number || last >= scheduler::kGenerationMax - 1) {
      last = 0;
      LogWarning(
          "the generation file is unreadable; workers and routers will report a higher generation",
          {{"file", path}, {"reason", "it holds no number below 2^23 - 2"}});
    }
  }
  const absl::Status stored = StoreGeneration(folder, last + 1);
  if (!stored.ok()) return stored;
  return last + 1;
}

absl::Status StoreGeneration(const std::string& folder, uint64_t generation) {
  const std::string path = PathIn(folder);
  const std::string next = path + ".next";
  if (absl::Status s = WriteSynced(next, absl::StrCat(generation, "\n")); !s.ok()) return s;
  if (rename(next.c_str(), path.c_str()) != 0) return Failed("replace", path);
  return SyncFolder(folder);
}

GenerationKeeper::GenerationKeeper(std::string folder) : folder_(std::move(folder)) {
  if (!folder_.empty()) thread_ = std::thread([this] { Run(); });
}

GenerationKeeper::~GenerationKeeper() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void GenerationKeeper::Keep(uint64_t generation) {
  {
    std::lock_guard lock(mu_);
    wanted_ = generation;
  }
  changed_.notify_one();
}

void GenerationKeeper::Run() {
  std::unique_lock lock(mu_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || wanted_ != 0; });
    if (wanted_ == 0) return;
    const uint64_t generation = std::exchange(wanted_, 0);
    lock.unlock();
    if (absl::Status status = StoreGeneration(folder_, generation); !status.ok()) {
      LogError("the generation was not stored",
               {{"generation", generation}, {"reason", std::string(status.message())}});
    }
    lock.lock();
  }
}

}  // namespace skein::services
