#include "engine/host/rank_wire.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSeparator = '\n';  // in a name, before the process
constexpr int kReadMax = 64;
constexpr int kSpins = 50;  // looks before it sleeps, some microseconds: as a communicator's call
constexpr auto kSleepMax = std::chrono::seconds(10);

struct Header {
  uint64_t group = 0;
  uint64_t rank = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankWire>> RankWire::Make() {
  std::unique_ptr<HostWire> host = HostWire::Make();
  const std::string process = ThisProcess();
  if (host == nullptr || process.empty()) {
    return absl::UnavailableError("this system has no wire between processes of a host");
  }
  std::string name = absl::StrCat(host->name(), std::string(1, kSeparator), process);
  return std::unique_ptr<RankWire>(new RankWire(std::move(host), std::move(name)));
}

RankWire::RankWire(std::unique_ptr<HostWire> host, std::string name)
    : host_(std::move(host)),
      name_(std::move(name)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SKEIN_CHECK(wake_fd_ >= 0);
}

RankWire::~RankWire() { close(wake_fd_); }

absl::Status RankWire::Join(uint64_t id, std::span<const std::string> names, int rank) {
  Leave();
  if (rank < 0 || rank >= static_cast<int>(names.size()) ||
      names[static_cast<size_t>(rank)] != name_) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, ": is another wire"));
  }
  std::vector<Peer> peers(names.size());
  auto watch = std::make_unique<ProcessWatch>();
  for (size_t r = 0; r < names.size(); ++r) {
    if (static_cast<int>(r) == rank) continue;
    const std::vector<std::string> parts = absl::StrSplit(names[r], kSeparator);
    if (parts.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", r, ": its name is malformed"));
    }
    absl::StatusOr<std::unique_ptr<HostChannel>> channel = host_->Connect(parts[0]);
    if (absl::IsResourceExhausted(channel.status())) return channel.status();
    // Only now: what was opened is of the process that is alive.
    if (!channel.ok() || !watch->Add(parts[1], reinterpret_cast<void*>(r + 1))) {
      return absl::UnavailableError(absl::StrCat("rank ", r, ": its process is not reached"));
    }
    peers[r].channel = *std::move(channel);
    peers[r].process = parts[1];
  }
  group_ = id;
  rank_ = rank;
  peers_ = std::move(peers);
  watch_ = std::move(watch);
  return absl::OkStatus();
}

void RankWire::Leave() {
  peers_.clear();
  watch_.reset();
  rank_ = -1;
}

void RankWire::Send(int rank, std::string message) {
  SKEIN_CHECK(rank >= 0 && rank < static_cast<int>(peers_.size()) && rank != rank_);
  SKEIN_CHECK(message.size() + 64 <= kMessageMax);
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.ended) return;
  if (!peer.unsent.empty() || !Write(&peer, message)) peer.unsent.push_back(std::move(message));
}

bool RankWire::Write(Peer* peer, const std::string& message) {
  const Header header{group_, static_cast<uint64_t>(rank_)};
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&header, 1)),
                                              std::as_bytes(std::span(message))};
  return peer->channel->Write(parts);
}

void RankWire::SendUnsent() {
  for (Peer& peer : peers_) {
    while (!peer.unsent.empty() && Write(&peer, peer.unsent.front())) peer.unsent.pop_front();
  }
}

bool RankWire::AwaitRoom() {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.unsent.empty() ||
           peer.channel->AwaitRoom(sizeof(Header) + peer.unsent.front().size());
  });
}

void RankWire::Read(std::vector<Arrival>* arrivals) {
  host_->Read(kReadMax, [&](std::span<const std::byte> message) {
    Header header;
    if (message.size() < sizeof header) return;
    std::memcpy(&header, message.data(), sizeof header);
    if (rank_ < 0 || header.group != group_ || header.rank >= peers_.size()) return;
    const auto text = message.subspan(sizeof header);
    arrivals->push_back(
        {static_cast<int>(header.rank), {reinterpret_cast<const char*>(text.data()), text.size()}});
  });
}

void RankWire::NoteDeaths(std::vector<Arrival>* arrivals) {
  if (watch_ == nullptr) return;
  for (void* const token : watch_->Ended()) {
    Peer& peer = peers_[reinterpret_cast<size_t>(token) - 1];
    peer.ended = true;
    peer.unsent.clear();
  }
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.ended || peer.dead || host_->HasUnread(peer.process)) continue;
    peer.dead = true;
    arrivals->push_back({.rank = static_cast<int>(rank), .message = {}, .died = true});
  }
}

std::vector<RankWire::Arrival> RankWire::Wait(Clock::time_point until) {
  std::vector<Arrival> arrivals;
  for (int idle = 0;; ++idle) {
    SendUnsent();
    Read(&arrivals);
    if (arrivals.empty() && idle % kSpins == 0) NoteDeaths(&arrivals);
    if (!arrivals.empty() || TakeWake() || Clock::now() >= until) return arrivals;
    if (idle >= kSpins) Sleep(until);
  }
}

void RankWire::Sleep(Clock::time_point until) {
  if (host_->Sleep() && AwaitRoom()) {
    const auto left = std::min<Clock::duration>(until - Clock::now(), kSleepMax);
    const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd fds[] = {{host_->fd(), POLLIN, 0},
                    {wake_fd_, POLLIN, 0},
                    {watch_ == nullptr ? -1 : watch_->fd(), POLLIN, 0}};
    poll(fds, std::size(fds), std::max<int>(0, static_cast<int>(wait_ms)));
  }
  host_->Wake();
}

void RankWire::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

bool RankWire::TakeWake() {
  uint64_t wakes = 0;
  return read(wake_fd_, &wakes, sizeof wakes) == sizeof wakes;
}

}  // namespace skein::engine
