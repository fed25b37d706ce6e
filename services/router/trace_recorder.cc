#include "services/router/trace_recorder.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/vocabulary/check.h"
#include "services/log/log.h"

namespace skein::services {
namespace {

constexpr uint64_t kIdMask = (uint64_t{1} << 53) - 1;  // every JSON reader keeps these whole

// Little endian, whatever the machine.
void AppendToken(int32_t token, std::vector<uint8_t>* bytes) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<uint8_t>(static_cast<uint32_t>(token) >> shift));
  }
}

int MakeNew(const std::string& path) {
  return ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
}

}  // namespace

std::vector<int64_t> TraceHashIds(const TraceKey& key, absl::Span<const int32_t> tokens,
                                  size_t block_tokens) {
  std::vector<int64_t> ids;
  std::array<uint8_t, 32> digest{};  // of the blocks before
  for (size_t begin = 0; begin < tokens.size(); begin += block_tokens) {
    std::vector<uint8_t> bytes(digest.begin(), digest.end());
    for (const int32_t token : tokens.subspan(begin, block_tokens)) AppendToken(token, &bytes);
    unsigned int length = 0;
    const uint8_t* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes.data(),
                               bytes.size(), digest.data(), &length);
    SKEIN_CHECK(made != nullptr && length == digest.size());
    uint64_t id = 0;
    for (size_t i = 0; i < sizeof(id); ++i) id = id << 8 | digest[i];
    ids.push_back(static_cast<int64_t>(id & kIdMask));
  }
  return ids;
}

absl::StatusOr<std::unique_ptr<TraceRecorder>> TraceRecorder::Open(const std::string& path,
                                                                   int64_t start_us,
                                                                   size_t queue_max) {
  constexpr int kMostFiles = 10'000;
  std::string name = path;
  int fd = MakeNew(name);
  for (int i = 1; fd < 0 && errno == EEXIST && i < kMostFiles; ++i) {
    name = absl::StrCat(path, ".", i);
    fd = MakeNew(name);
  }
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", name, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<TraceRecorder>(
      new TraceRecorder(::fdopen(fd, "w"), std::move(name), start_us, queue_max));
}

TraceRecorder::TraceRecorder(std::FILE* file, std::string path, int64_t start_us, size_t queue_max)
    : file_(file), path_(std::move(path)), start_us_(start_us), queue_max_(queue_max) {
  SKEIN_CHECK(file_ != nullptr);
  SKEIN_CHECK(RAND_bytes(key_.data(), static_cast<int>(key_.size())) == 1);
  writer_ = std::thread([this] { WriteAll(); });
}

TraceRecorder::~TraceRecorder() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_one();
  writer_.join();
  std::fclose(file_);
}

void TraceRecorder::Record(Choice choice) {
  {
    std::lock_guard lock(mu_);
    if (queue_.size() >= queue_max_) {
      dropped_.fetch_add(1);
      return;
    }
    queue_.push_back(std::move(choice));
  }
  changed_.notify_one();
}

void TraceRecorder::WriteAll() {
  for (bool stopping = false; !stopping;) {
    std::vector<Choice> choices;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      choices.swap(queue_);
      stopping = stopping_;
    }
    Write(choices);
  }
}

void TraceRecorder::Write(const std::vector<Choice>& choices) {
  if (choices.empty()) return;
  std::string lines;
  for (const Choice& choice : choices) lines += Line(choice);
  const bool whole =
      std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size() && std::fflush(file_) == 0;
  if (whole) {
    written_.fetch_add(choices.size());
    return;
  }
  LogWarning("requests not recorded", {{"file", path_}, {"reason", std::strerror(errno)}});
  std::clearerr(file_);
  dropped_.fetch_add(choices.size());
}

std::string TraceRecorder::Line(const Choice& choice) const {
  const int64_t milliseconds = std::max<int64_t>(0, choice.arrived_us - start_us_) / 1000;
  return absl::StrCat("{\"timestamp\": ", milliseconds,
                      ", \"input_length\": ", choice.spec->prompt.size(),
                      ", \"output_length\": ", choice.output_tokens, ", \"hash_ids\": [",
                      absl::StrJoin(TraceHashIds(key_, choice.spec->prompt), ", "), "]}\n");
}

}  // namespace skein::services
