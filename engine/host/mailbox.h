// How processes of one host tell each other that there is something to read, and wake a process
// that sleeps. Internal to the engine.
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

// This fabric's. Not thread-safe, but for the fd, which another thread may poll.
class Mailbox {
 public:
  // Null where the system has no pipes or memory left.
  static std::unique_ptr<Mailbox> Make();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;

  // By which others find it in this process.
  std::string name() const;

  bool HasLetters() const;
  // All letters that came. Cancels what Sleep announced, if somebody has rung.
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

// Another one's, or this fabric's own. Not thread-safe.
class MailboxOf {
 public:
  // `name` is Mailbox::name() in the process of that number. Errors as OpenOf's.
  static absl::StatusOr<MailboxOf> Open(pid_t pid, const std::string& name);
  MailboxOf(MailboxOf&& other) noexcept;
  ~MailboxOf();

  // False: no room now.
  bool Post(const Letter& letter);
  void WakeOwner();  // if it sleeps

 private:
  MailboxOf(int pipe, MailboxCard* card) : pipe_(pipe), card_(card) {}

  int pipe_;
  MailboxCard* card_;
};

// Opens a descriptor of a process of this host and user. RESOURCE_EXHAUSTED: this process has no
// descriptors or memory left now; another error: it cannot be opened.
absl::StatusOr<int> OpenOf(pid_t pid, int fd);

// For tokens.
uint64_t RandomToken();

}  // namespace skein::engine
