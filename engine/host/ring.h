// A queue of messages in shared memory, from one process to one other. Internal to the engine.
//
// Only its writer writes into it, and the reader sees whole messages only. So a writer that is
// killed at any moment leaves its earlier messages intact and stops no other process.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace skein::engine {

// Bytes of unread messages that a ring can hold; each message takes 8 bytes more and padding to 64.
inline constexpr size_t kRingBytes = 512 << 10;
inline constexpr size_t kRingNameMax = 512;

// The first page of the memory; the messages' bytes follow.
struct RingState {
  uint64_t token = 0;                   // of the ring whose letter named it
  std::array<char, kRingNameMax> name;  // of the writer's mailbox; the writer's business
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> writer_waits;
  std::atomic<uint32_t> writer_left;
};

// One process's mapping of a ring. Not thread-safe.
class Ring {
 public:
  // Makes a ring, for its writer. RESOURCE_EXHAUSTED when there is no memory or descriptor for it.
  static absl::StatusOr<Ring> Make();
  // Opens the ring behind this descriptor, which stays the caller's. NOT_FOUND: it is not a ring.
  // RESOURCE_EXHAUSTED: there is no memory to map it.
  static absl::StatusOr<Ring> Open(int fd);

  Ring(Ring&& other) noexcept;
  ~Ring();

  RingState* state() const { return state_; }
  // The descriptor by which other processes of this host may open it; -1 in a process that opened
  // it.
  int fd() const { return fd_; }

  // For the writer: appends these parts as one message. False: there is no room.
  bool Write(std::span<const std::span<const std::byte>> parts);
  // For the writer, before it sleeps until the reader's HasWaiter. False: there is room for
  // `bytes`.
  bool AwaitRoom(size_t bytes);
  // For the writer: gives memory back to the system that holds no unread message. Write does so
  // when the messages have gone through another 64 KiB, but at most once a second, so that a ring
  // with few messages does not hold all of its memory after hours.
  void GiveBack();

  // For the reader: the oldest message, valid until Pop; nullopt if there is none.
  std::optional<std::span<const std::byte>> Front();
  void Pop();
  // For the reader, after Pops: whether the writer waits to be woken.
  bool HasWaiter();

 private:
  Ring(RingState* state, int fd) : state_(state), fd_(fd) {}
  static absl::StatusOr<RingState*> Map(int fd);
  std::byte* Place(uint64_t position) const;
  bool Fits(size_t bytes);
  void GiveBackAtTimes();

  RingState* state_;
  int fd_;
  uint64_t looked_ = 0;  // the position at which GiveBackAtTimes looked at the time last
  std::chrono::steady_clock::time_point next_give_back_;
  // What each side remembers of the other's position.
  uint64_t written_ = 0;
  uint64_t read_ = 0;
  size_t front_bytes_ = 0;
};

}  // namespace skein::engine
