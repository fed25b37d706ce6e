#include "engine/host/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kPageBytes = 64 << 10;  // of any machine, and its multiples
constexpr size_t kFileBytes = kPageBytes + kRingBytes;
constexpr size_t kMappedBytes = kFileBytes + kRingBytes;
constexpr auto kGiveBackSpacing = std::chrono::seconds(1);
static_assert(sizeof(RingState) <= kPageBytes && kRingBytes % kPageBytes == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

size_t RecordBytes(size_t bytes) { return (sizeof(uint64_t) + bytes + 63) / 64 * 64; }

}  // namespace

// The messages' bytes are mapped twice, end to end, so that none is in two parts.
absl::StatusOr<RingState*> Ring::Map(int fd) {
  void* const base = mmap(nullptr, kMappedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, "a ring's place in memory");
  auto* const place = static_cast<std::byte*>(base);
  const auto map = [&](size_t at, size_t bytes, off_t offset) {
    return mmap(place + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) !=
           MAP_FAILED;
  };
  if (map(0, kFileBytes, 0) && map(kFileBytes, kRingBytes, kPageBytes)) {
    return static_cast<RingState*>(base);
  }
  const absl::Status status = absl::ErrnoToStatus(errno, "a ring cannot be mapped");
  munmap(base, kMappedBytes);
  return status;
}

absl::StatusOr<Ring> Ring::Make() {
  const int fd = memfd_create("skein-ring", MFD_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a ring's memory");
  const absl::StatusOr<RingState*> state =
      ftruncate(fd, kFileBytes) == 0 ? Map(fd) : absl::ErrnoToStatus(errno, "a ring's memory");
  if (!state.ok()) {
    close(fd);
    return state.status();
  }
  return Ring(*state, fd);
}

absl::StatusOr<Ring> Ring::Open(int fd) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size != kFileBytes) {
    return absl::NotFoundError("not a ring");
  }
  const absl::StatusOr<RingState*> state = Map(fd);
  if (!state.ok()) return state.status();
  return Ring(*state, -1);
}

Ring::Ring(Ring&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      fd_(std::exchange(other.fd_, -1)),
      looked_(other.looked_),
      next_give_back_(other.next_give_back_),
      written_(other.written_),
      read_(other.read_),
      front_bytes_(other.front_bytes_) {}

Ring::~Ring() {
  if (state_ != nullptr) munmap(state_, kMappedBytes);
  if (fd_ >= 0) close(fd_);
}

std::byte* Ring::Place(uint64_t position) const {
  return reinterpret_cast<std::byte*>(state_) + kPageBytes + position % kRingBytes;
}

bool Ring::Fits(size_t bytes) {
  if (written_ + bytes - read_ <= kRingBytes) return true;
  read_ = state_->read.load(std::memory_order_seq_cst);
  return written_ + bytes - read_ <= kRingBytes;
}

bool Ring::Write(std::span<const std::span<const std::byte>> parts) {
  uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  const size_t record = RecordBytes(bytes);
  SKEIN_CHECK(record <= kRingBytes);
  if (!Fits(record)) return false;
  GiveBackAtTimes();
  std::byte* place = Place(written_);
  std::memcpy(place, &bytes, sizeof bytes);
  place += sizeof bytes;
  for (const auto& part : parts) {
    if (!part.empty()) std::memcpy(place, part.data(), part.size());
    place += part.size();
  }
  written_ += record;
  // In one order with the reader's going to sleep (Mailbox).
  state_->written.store(written_, std::memory_order_seq_cst);
  return true;
}

// The messages before have been read by now, as a rule.
void Ring::GiveBackAtTimes() {
  if (written_ / kPageBytes == looked_ / kPageBytes) return;
  looked_ = written_;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_give_back_) return;
  next_give_back_ = now + kGiveBackSpacing;
  GiveBack();
}

// Only the writer writes, and the reader reads what is written and not read: whole pages beyond
// that are the writer's alone.
void Ring::GiveBack() {
  read_ = state_->read.load(std::memory_order_seq_cst);
  if (written_ - read_ > kRingBytes) return;
  uint64_t begin = (written_ + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint64_t end = (read_ + kRingBytes) / kPageBytes * kPageBytes;
  while (begin < end) {
    const uint64_t at = begin % kRingBytes;
    const uint64_t bytes = std::min(end - begin, kRingBytes - at);
    // Where it is refused the memory is kept.
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(kPageBytes + at),
              static_cast<off_t>(bytes));
    begin += bytes;
  }
}

bool Ring::AwaitRoom(size_t bytes) {
  state_->writer_waits.store(1, std::memory_order_seq_cst);
  if (!Fits(RecordBytes(bytes))) return true;
  state_->writer_waits.store(0, std::memory_order_relaxed);
  return false;
}

std::optional<std::span<const std::byte>> Ring::Front() {
  if (read_ == written_) written_ = state_->written.load(std::memory_order_seq_cst);
  if (read_ == written_) return std::nullopt;
  uint64_t bytes = 0;
  std::memcpy(&bytes, Place(read_), sizeof bytes);
  const uint64_t there = written_ - read_;
  if (there > kRingBytes || bytes > there || RecordBytes(bytes) > there) return std::nullopt;
  front_bytes_ = RecordBytes(bytes);
  return std::span<const std::byte>(Place(read_) + sizeof bytes, bytes);
}

void Ring::Pop() {
  read_ += front_bytes_;
  state_->read.store(read_, std::memory_order_seq_cst);
}

bool Ring::HasWaiter() {
  return state_->writer_waits.load(std::memory_order_seq_cst) != 0 &&
         state_->writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace skein::engine
