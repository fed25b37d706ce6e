#include "engine/host/host_wire.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr char kSeparator = '|';

// What a name holds: the process, and its mailbox.
struct Name {
  explicit Name(const std::string& name)
      : process(name.substr(0, name.find(kSeparator))),
        mailbox(name.substr(std::min(process.size() + 1, name.size()))) {}

  const std::string process, mailbox;
};

static_assert(kMessageMax <= kRingBytes / 2);

}  // namespace

HostChannel::~HostChannel() { ring_.state()->writer_left.store(1, std::memory_order_release); }

bool HostChannel::Write(std::span<const std::span<const std::byte>> parts) {
  if (!told_) told_ = mailbox_.Post({getpid(), ring_.fd(), ring_.state()->token});
  if (!told_ || !ring_.Write(parts)) return false;
  mailbox_.WakeOwner();
  return true;
}

bool HostChannel::AwaitRoom(size_t bytes) { return told_ && ring_.AwaitRoom(bytes); }

std::unique_ptr<HostWire> HostWire::Make() {
  auto mailbox = ThisProcess().empty() ? nullptr : Mailbox::Make();
  if (mailbox == nullptr) return nullptr;
  std::unique_ptr<HostWire> wire(new HostWire(std::move(mailbox)));
  return wire->name_.size() < kRingNameMax ? std::move(wire) : nullptr;
}

HostWire::HostWire(std::unique_ptr<Mailbox> mailbox)
    : mailbox_(std::move(mailbox)),
      name_(absl::StrCat(ThisProcess(), std::string(1, kSeparator), mailbox_->name())) {}

HostWire::~HostWire() = default;

absl::StatusOr<std::unique_ptr<HostChannel>> HostWire::Connect(const std::string& name) {
  const Name to(name);
  const std::optional<pid_t> pid = VisibleProcess(to.process);
  if (!pid.has_value()) return absl::NotFoundError("not a process of this host");
  auto mailbox = MailboxOf::Open(*pid, to.mailbox);
  if (!mailbox.ok()) return mailbox.status();
  auto ring = Ring::Make();
  if (!ring.ok()) return ring.status();
  ring->state()->token = RandomToken();
  std::memcpy(ring->state()->name.data(), name_.data(), name_.size());
  return std::make_unique<HostChannel>(*std::move(ring), *std::move(mailbox));
}

void HostWire::TakeLetters() {
  std::vector<Letter> letters = std::exchange(postponed_, {});
  const std::vector<Letter> came = mailbox_->Take();
  letters.insert(letters.end(), came.begin(), came.end());
  if (!letters.empty()) ForgetEnded();
  for (const Letter& letter : letters) {
    if (!Accept(letter)) postponed_.push_back(letter);
  }
}

// Opens all that the ring needs. False: impossible now, for want of descriptors or memory. The
// letter is dropped if its process has died meanwhile.
bool HostWire::Accept(const Letter& letter) {
  const absl::StatusOr<int> fd = OpenOf(letter.pid, letter.fd);
  if (!fd.ok()) return !absl::IsResourceExhausted(fd.status());
  auto ring = Ring::Open(*fd);
  close(*fd);
  if (!ring.ok()) return !absl::IsResourceExhausted(ring.status());
  if (ring->state()->token != letter.token) return true;
  std::array<char, kRingNameMax> text = ring->state()->name;
  text.back() = '\0';
  const Name name(text.data());
  auto writer = MailboxOf::Open(letter.pid, name.mailbox);
  if (absl::IsResourceExhausted(writer.status())) return false;
  auto inbound =
      std::make_unique<Inbound>(Inbound{*std::move(ring), name.process, std::move(writer)});
  inbound->ended = !writers_.Add(name.process, inbound.get());
  inbound_.push_back(std::move(inbound));
  return true;
}

// What they wrote is read first.
void HostWire::ForgetEnded() {
  for (void* const token : writers_.Ended()) static_cast<Inbound*>(token)->ended = true;
  std::erase_if(inbound_, [this](const auto& inbound) {
    const RingState& state = *inbound->ring.state();
    const bool left = state.writer_left.load(std::memory_order_acquire) != 0;
    if ((!inbound->ended && !left) || inbound->ring.Front().has_value()) return false;
    writers_.Remove(inbound.get());
    return true;
  });
}

void HostWire::WakeWriters() {
  for (const auto& inbound : inbound_) {
    if (!std::exchange(inbound->popped, false) || !inbound->ring.HasWaiter()) continue;
    if (inbound->writer.ok()) inbound->writer->WakeOwner();
  }
}

bool HostWire::HasUnread(const std::string& process) const {
  return std::any_of(inbound_.begin(), inbound_.end(), [&](const auto& inbound) {
    return inbound->process == process && inbound->ring.Front().has_value();
  });
}

bool HostWire::Sleep() {
  ForgetEnded();
  mailbox_->Sleep();
  const bool quiet = !mailbox_->HasLetters() && postponed_.empty() &&
                     std::none_of(inbound_.begin(), inbound_.end(), [](const auto& inbound) {
                       return inbound->ring.Front().has_value();
                     });
  if (!quiet) mailbox_->Wake();
  return quiet;
}

void HostWire::Wake() {
  mailbox_->Wake();
  TakeLetters();
}

}  // namespace skein::engine
