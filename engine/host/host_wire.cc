#include "engine/host/host_wire.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr char kSeparator = '|';

// What a name holds: the process, and its mailbox.
std::optional<std::pair<pid_t, MailboxOf>> OpenName(const std::string& name) {
  const size_t at = name.find(kSeparator);
  if (at == std::string::npos) return std::nullopt;
  const std::optional<pid_t> pid = VisibleProcess(name.substr(0, at));
  if (!pid.has_value()) return std::nullopt;
  auto mailbox = MailboxOf::Open(*pid, name.substr(at + 1));
  if (!mailbox.has_value()) return std::nullopt;
  return std::make_pair(*pid, *std::move(mailbox));
}

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

std::unique_ptr<HostChannel> HostWire::Connect(const std::string& name) {
  auto other = OpenName(name);
  auto ring = other.has_value() ? Ring::Make() : std::nullopt;
  if (!ring.has_value()) return nullptr;
  ring->state()->token = RandomToken();
  std::memcpy(ring->state()->name.data(), name_.data(), name_.size());
  return std::make_unique<HostChannel>(*std::move(ring), std::move(other->second));
}

void HostWire::TakeLetters() {
  for (const Letter& letter : mailbox_->Take()) Accept(letter);
}

// A letter of one who has died meanwhile is for nobody.
void HostWire::Accept(const Letter& letter) {
  ForgetEnded();
  const int fd = OpenOf(letter.pid, letter.fd);
  if (fd < 0) return;
  auto ring = Ring::Open(fd);
  close(fd);
  if (!ring.has_value() || ring->state()->token != letter.token) return;
  auto& name = ring->state()->name;
  name.back() = '\0';
  auto inbound = std::make_unique<Inbound>(Inbound{*std::move(ring), name.data(), std::nullopt});
  const std::string process = inbound->writer.substr(0, inbound->writer.find(kSeparator));
  inbound->ended = !writers_.Add(process, inbound.get());
  inbound_.push_back(std::move(inbound));
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
    if (!inbound->mailbox.has_value()) {
      auto writer = OpenName(inbound->writer);
      if (!writer.has_value()) continue;  // gone
      inbound->mailbox.emplace(std::move(writer->second));
    }
    inbound->mailbox->WakeOwner();
  }
}

bool HostWire::Sleep() {
  mailbox_->Sleep();
  const bool quiet = !mailbox_->HasLetters() &&
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
