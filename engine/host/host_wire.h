// Messages between processes of one host and user, which find one another in /proc. Each process
// has a mailbox, and one ring to each of the others. Internal to the engine. Not thread-safe,
// except that another thread may poll the fd.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/host/mailbox.h"
#include "engine/host/message_channel.h"
#include "engine/host/process_watch.h"
#include "engine/host/ring.h"

namespace skein::engine {

// The path to one other process.
class HostChannel : public MessageChannel {
 public:
  HostChannel(Ring ring, MailboxOf mailbox)
      : ring_(std::move(ring)), mailbox_(std::move(mailbox)) {}
  ~HostChannel() override;

  bool Write(std::span<const std::span<const std::byte>> parts) override;
  bool AwaitRoom(size_t bytes) override;

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

  // The name by which other processes connect to this one.
  const std::string& name() const { return name_; }

  // RESOURCE_EXHAUSTED: this process has no descriptors or no memory left at the moment. Any other
  // error: the process has ended or is not visible from here.
  absl::StatusOr<std::unique_ptr<HostChannel>> Connect(const std::string& name);

  // Passes about `max` received messages at most to `receive`, and returns their number.
  template <typename Receive>
  int Read(int max, const Receive& receive);

  // Whether a message of the process whose ThisProcess() this is has not been read yet.
  bool HasUnread(const std::string& process) const;

  // To be called before a sleep on fd(). False: there is something to read, or a ring could not be
  // opened for want of descriptors or memory; Read tries it again.
  bool Sleep();
  // To be called after the sleep.
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
  // Processes that have ended are removed at the next letter and before the next sleep.
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
