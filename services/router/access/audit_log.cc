#include "services/router/access/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/http/error.h"
#include "services/log/log.h"
#include "services/log/repeat_limit.h"

namespace skein::services {
namespace {

int64_t SystemUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// UTC; `format` is strftime's and is followed by the microseconds and "Z".
std::string TimeText(int64_t unix_us, const char* format) {
  const std::time_t seconds = unix_us / 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  char micros[16];
  std::snprintf(micros, sizeof micros, ".%06dZ", static_cast<int>(unix_us % 1'000'000));
  return absl::StrCat(text, micros);
}

}  // namespace

std::string AuditLine(const AuditRecord& record, int64_t unix_us) {
  using http::JsonString;
  std::string line = absl::StrCat("{\"time\":\"", TimeText(unix_us, "%Y-%m-%dT%H:%M:%S"), "\"");
  const auto add = [&line](const char* name, const std::string& value) {
    absl::StrAppend(&line, ",\"", name, "\":", JsonString(value));
  };
  add("tenant", record.tenant);
  add("key", record.key_id);
  add("request_id", record.request_id);
  add("path", record.path);
  add("model", record.model);
  absl::StrAppend(&line, ",\"status\":", record.status);
  add("outcome", record.outcome);
  if (!record.code.empty()) add("code", record.code);
  absl::StrAppend(&line, ",\"prompt_tokens\":", record.prompt_tokens,
                  ",\"output_tokens\":", record.output_tokens, ",\"took_us\":", record.took_us,
                  record.offline ? ",\"offline\":true}" : "}");
  return line;
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(Options options) {
  if (!options.unix_us) options.unix_us = SystemUs;
  std::unique_ptr<AuditLog> log(new AuditLog(std::move(options)));
  if (absl::Status status = log->OpenFile(); !status.ok()) return status;
  log->thread_ = std::thread([raw = log.get()] { raw->Run(); });
  return log;
}

AuditLog::~AuditLog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (fd_ >= 0) ::close(fd_);
}

// A process that ended in the middle of a write has left a part of a line; it gets an end of its
// own, so that the next line is whole.
absl::Status AuditLog::OpenFile() {
  const auto failed = [this](const char* what) {
    return absl::UnavailableError(
        absl::StrCat(what, " ", options_.path, ": ", std::strerror(errno)));
  };
  const int fd = ::open(options_.path.c_str(), O_CREAT | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return failed("cannot open");
  struct stat file {};
  char last = '\n';
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) ||
      (file.st_size > 0 && ::pread(fd, &last, 1, file.st_size - 1) != 1)) {
    absl::Status status = failed("cannot append lines to");
    ::close(fd);
    return status;
  }
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  size_ = file.st_size;
  if (last != '\n' && ::write(fd_, "\n", 1) == 1) ++size_;
  return absl::OkStatus();
}

void AuditLog::Record(const AuditRecord& record) {
  const std::string line = AuditLine(record, options_.unix_us()) + "\n";
  {
    std::lock_guard lock(mutex_);
    ++recorded_;
    if (held_bytes_ + line.size() > options_.held_bytes_max) {
      lost_.fetch_add(1);
      return;
    }
    waiting_.text += line;
    ++waiting_.lines;
    held_bytes_ += line.size();
  }
  changed_.notify_one();
}

void AuditLog::Reopen() {
  {
    std::lock_guard lock(mutex_);
    reopen_ = true;
  }
  changed_.notify_one();
}

void AuditLog::Flush() {
  std::unique_lock lock(mutex_);
  const uint64_t until = recorded_;
  flushed_.wait(lock, [&] { return written_.load() + lost_.load() >= until; });
}

void AuditLog::Run() {
  Batch batch;
  for (;;) {
    bool reopen = false, stopping = false;
    {
      std::unique_lock lock(mutex_);
      const auto due = [&] { return stopping_ || reopen_ || (batch.lines == 0 && waiting_.lines); };
      if (batch.lines == 0) {
        changed_.wait(lock, due);
      } else {  // it was refused before
        changed_.wait_for(lock, std::chrono::microseconds(options_.retry_us), due);
      }
      if (batch.lines == 0) batch = std::exchange(waiting_, {});
      reopen = std::exchange(reopen_, false);
      stopping = stopping_;
    }
    if (reopen) {
      if (absl::Status status = OpenFile(); !status.ok()) {
        Fail(std::string(status.message()));
      } else {
        LogInfo("audit log opened anew", {{"file", options_.path}});
      }
    }
    const bool done = batch.lines == 0 || Write(batch);
    std::lock_guard lock(mutex_);
    if (done || stopping) {
      (done ? written_ : lost_).fetch_add(batch.lines);
      held_bytes_ -= batch.text.size();
      batch = {};
      flushed_.notify_all();
    }
    if (stopping && waiting_.lines == 0) return;
  }
}

bool AuditLog::Fail(const std::string& what) {
  failing_.store(true);
  if (AdmitRepeated("audit log")) {
    LogError("the audit log cannot be written; lines wait, and are lost when too many do",
             {{"file", options_.path}, {"reason", what}});
  }
  return false;
}

bool AuditLog::Write(const Batch& batch) {
  size_t done = 0;
  while (done < batch.text.size()) {
    const ssize_t n = ::write(fd_, batch.text.data() + done, batch.text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const bool whole = done == batch.text.size();
  if (!whole || ::fdatasync(fd_) != 0) {
    const int why = errno;
    // What was written of it goes, so that the next try does not write it twice.
    if (::ftruncate(fd_, size_) != 0) {
      LogError("the audit log has lines twice", {{"file", options_.path}});
    }
    return Fail(std::strerror(why));
  }
  size_ += static_cast<int64_t>(done);
  if (failing_.exchange(false)) {
    RepeatedIsOver("audit log");
    LogInfo("the audit log is written again", {{"file", options_.path}});
  }
  if (options_.bytes_max > 0 && size_ >= options_.bytes_max) Rotate();
  return true;
}

void AuditLog::Rotate() {
  const std::string kept =
      absl::StrCat(options_.path, ".", TimeText(options_.unix_us(), "%Y%m%dT%H%M%S"));
  if (::rename(options_.path.c_str(), kept.c_str()) != 0) {
    Fail(absl::StrCat("cannot rename it to ", kept, ": ", std::strerror(errno)));
    return;
  }
  LogInfo("audit log rotated", {{"file", kept}});
  if (absl::Status status = OpenFile(); !status.ok()) Fail(std::string(status.message()));
}

}  // namespace skein::services
