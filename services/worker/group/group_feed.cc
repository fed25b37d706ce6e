#include "services/worker/group/group_feed.h"

#include <pthread.h>

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <variant>

namespace skein::services {
namespace {

constexpr auto kIdleMax = std::chrono::seconds(10);
// The first byte of what SendSharing sends: the number of no kind of feed message.
constexpr char kSharing = 0x7f;
static_assert(std::variant_size_v<scheduler::FeedMessage> < kSharing);
constexpr auto kFlush = std::chrono::milliseconds(1);

}  // namespace

GroupFeed::GroupFeed(std::shared_ptr<engine::GroupContext> context, Told told)
    : context_(std::move(context)), wire_(context_->feed()), told_(std::move(told)) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "group-feed");
    Loop();
  });
}

GroupFeed::~GroupFeed() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wire_->Wake();
  thread_.join();
}

void GroupFeed::Send(int rank, const scheduler::FeedMessage& message) {
  Queue(rank, Encode(message));
}

void GroupFeed::SendSharing(int rank, const std::string& message) {
  Queue(rank, kSharing + message);
}

void GroupFeed::Queue(int rank, std::string message) {
  {
    const std::lock_guard lock(mutex_);
    queued_.emplace_back(rank, std::move(message));
  }
  wire_->Wake();
}

void GroupFeed::Loop() {
  while (SendQueued()) {
    const auto arrivals = wire_->Wait(std::chrono::steady_clock::now() + kIdleMax);
    for (const engine::RankWire::Arrival& arrival : arrivals) Tell(arrival);
  }
  // What found no room yet; the others learn the rest by their time limits.
  wire_->Wait(std::chrono::steady_clock::now() + kFlush);
}

bool GroupFeed::SendQueued() {
  std::vector<std::pair<int, std::string>> queued;
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    queued.swap(queued_);
    stopping = stopping_;
  }
  for (auto& [rank, message] : queued) {
    const bool other = rank >= 0 && rank < context_->size() && rank != context_->rank();
    if (other) wire_->Send(rank, std::move(message));
  }
  return !stopping;
}

void GroupFeed::Tell(const engine::RankWire::Arrival& arrival) {
  if (arrival.died) {
    return told_.lost(arrival.rank, absl::UnavailableError("its process has ended"));
  }
  if (!arrival.message.empty() && arrival.message.front() == kSharing) {
    if (told_.sharing) told_.sharing(arrival.rank, arrival.message.substr(1));
    return;
  }
  absl::StatusOr<scheduler::FeedMessage> message =
      scheduler::DecodeFeed(std::as_bytes(std::span(arrival.message)));
  if (!message.ok()) return told_.lost(arrival.rank, message.status());
  told_.arrived(arrival.rank, *std::move(message));
}

}  // namespace skein::services
