// Messages between the processes of one host and user, which find one another in /proc: each has a
// mailbox, and a ring of its own to each of the others. Internal to the engine. Not thread-safe,
// but for the fd, which another thread may poll.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/host/mailbox.h"
#include "engine/host/process_watch.h"
#include "engine/host/ring.h"

namespace skein::engine {

// The way to one other.
class HostChannel {
 public:
  HostChannel(Ring ring, MailboxOf mailbox)
      : ring_(std::move(ring)), mailbox_(std::move(mailbox)) {}
  ~HostChannel();

  // A message of these parts, end to end, at most kRingBytes / 2. False: no room now.
  bool Write(std::span<const std::span<const std::byte>> parts);
  // Before a sleep on HostWire::fd(), which ends when there is room. False: try at once.
  bool AwaitRoom(size_t bytes);

 private:
  Ring ring_;
  MailboxOf mailbox_;
  bool told_ = false;  // the other one knows of the ring
};

class HostWire {
 public:
  // Null where the system does not have what it takes.
  static std::unique_ptr<HostWire> Make();
  ~HostWire();

  // By which others connect to it.
  const std::string& name() const { return name_; }

  // RESOURCE_EXHAUSTED: this process has no descriptors or memory left now. Another error: not a
  // process that is visible from here, or gone.
  absl::StatusOr<std::unique_ptr<HostChannel>> Connect(const std::string& name);

  // Gives the messages that came, some `max` at most, to `receive`; how many they were.
  template <typename Receive>
  int Read(int max, const Receive& receive);

  // Whether something that this process (ThisProcess() there) wrote has not been read.
  bool HasUnread(const std::string& process) const;

  // Before a sleep on fd(). False: there is something to read, or a ring that for lack of
  // descriptors or memory could not be opened; Read tries again.
  bool Sleep();
  // After it.
  void Wake();
  int fd() const { return mailbox_->fd(); }

 private:
  struct Inbound {
    Ring ring;
    std::string process;               // the writer
    absl::StatusOr<MailboxOf> writer;  // its mailbox, if it lives
    bool ended = false;
    bool popped = false;
  };

  explicit HostWire(std::unique_ptr<Mailbox> mailbox);
  void TakeLetters();
  bool Accept(const Letter& letter);
  void ForgetEnded();
  void WakeWriters();

  const std::unique_ptr<Mailbox> mailbox_;
  const std::string name_;
  ProcessWatch writers_;
  std::vector<Letter> postponed_;  // for lack of descriptors or memory
  // A process that left is forgotten at the next letter and before the next sleep.
  std::vector<std::unique_ptr<Inbound>> inbound_;
};

template <typename Receive>
int HostWire::Read(int max, const Receive& receive) {
  if (mailbox_->HasLetters() || !postponed_.empty()) TakeLetters();
  int count = 0;
  for (bool more = true; more && count < max;) {
    more = false;
    for (const auto& inbound : inbound_) {
      const auto message = inbound->ring.Front();
      if (!message.has_value()) continue;
      receive(*message);
      inbound->ring.Pop();
      inbound->popped = more = true;
      ++count;
    }
  }
  if (count > 0) WakeWriters();
  return count;
}

}  // namespace skein::engine
