// A queue of messages in shared memory, from one process to one other. Internal to the engine.
//
// Only its writer ever writes into it, and a message is seen when it is whole: a writer that
// is killed at any moment leaves what it had written, and stops nobody but itself.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace skein::engine {

// Of messages in one ring that nobody has read yet, with 8 bytes and padding to 64 for each.
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
  // A new one, for its writer. RESOURCE_EXHAUSTED.
  static absl::StatusOr<Ring> Make();
  // The one behind this descriptor, which stays the caller's. NOT_FOUND: it is none;
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<Ring> Open(int fd);

  Ring(Ring&& other) noexcept;
  ~Ring();

  RingState* state() const { return state_; }
  // By which others of this host may open it; -1 if it was opened here.
  int fd() const { return fd_; }

  // The writer's: a message of these parts, end to end. False: no room.
  bool Write(std::span<const std::span<const std::byte>> parts);
  // Before the writer sleeps until the reader's HasWaiter. False: there is room for `bytes`.
  bool AwaitRoom(size_t bytes);

  // The reader's: the oldest message, valid until Pop. nullopt: none.
  std::optional<std::span<const std::byte>> Front();
  void Pop();
  // Whether the writer is to be woken, after some Pops.
  bool HasWaiter();

 private:
  Ring(RingState* state, int fd) : state_(state), fd_(fd) {}
  static absl::StatusOr<RingState*> Map(int fd);
  std::byte* Place(uint64_t position) const;
  bool Fits(size_t bytes);

  RingState* state_;
  int fd_;
  // What each side knows without asking.
  uint64_t written_ = 0;
  uint64_t read_ = 0;
  size_t front_bytes_ = 0;
};

}  // namespace skein::engine
