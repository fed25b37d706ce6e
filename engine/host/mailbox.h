// Mailbox: by it processes of one host tell each other that there is something to read, and wake a
// process that sleeps. Internal to the engine.
//
// A letter is one small write into a pipe, which the kernel takes whole or not at all. So a process
// that is killed at any moment stops nobody but itself.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::engine {

// "Open descriptor `fd` of process `pid`: it is my ring for you, with this token in it."
struct Letter {
  int32_t pid = 0;
  int32_t fd = 0;
  uint64_t token = 0;
};

// Shared by the owner of a mailbox and all processes that know it.
struct MailboxCard {
  uint64_t token = 0;
  std::atomic<uint64_t> letters;   // grows after a letter was posted
  std::atomic<uint64_t> sleeping;  // 0: awake; else which sleep
};

// The mailbox of this process. Not thread-safe, except that another thread may poll the fd.
class Mailbox {
 public:
  // Null where the system has no pipes or memory left.
  static std::unique_ptr<Mailbox> Make();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;

  // The name by which other processes find it.
  std::string name() const;

  bool HasLetters() const;
  // All letters that have arrived. If a process has rung, this ends what Sleep announced.
  std::vector<Letter> Take();

  // Until Wake, every process that writes to this one rings: fd() becomes readable. Call it before
  // the last check for messages.
  void Sleep();
  void Wake();
  int fd() const { return pipe_; }

 private:
  Mailbox(int pipe, int file, MailboxCard* card) : pipe_(pipe), file_(file), card_(card) {}

  const int pipe_;
  const int file_;  // the card's
  MailboxCard* const card_;
  uint64_t seen_ = 0;
  uint64_t sleeps_ = 0;
};

// Writes to a mailbox of another process or of this one. Not thread-safe.
class MailboxOf {
 public:
  // `name` is Mailbox::name() in the process of that number. Errors as OpenOf's.
  static absl::StatusOr<MailboxOf> Open(pid_t pid, const std::string& name);
  MailboxOf(MailboxOf&& other) noexcept;
  ~MailboxOf();

  // False: there is no room now.
  bool Post(const Letter& letter);
  void WakeOwner();  // if it sleeps

 private:
  MailboxOf(int pipe, MailboxCard* card) : pipe_(pipe), card_(card) {}

  int pipe_;
  MailboxCard* card_;
};

// Opens a descriptor of another process of this host and user. RESOURCE_EXHAUSTED: this process has
// no descriptors or no memory left at the moment. Any other error: it cannot be opened.
absl::StatusOr<int> OpenOf(pid_t pid, int fd);

// For tokens.
uint64_t RandomToken();

}  // namespace skein::engine
