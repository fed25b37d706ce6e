#include "tests/sim/formation_feeds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

using scheduler::FeedMessage;
using scheduler::GroupOrder;
using scheduler::kMillisecondUs;

namespace {

constexpr int kRanksMax = 8;
constexpr TimeUs kConnectUnits = 300;  // for all members to come
constexpr TimeUs kWireUs = 100;        // of a message within a node, at most

std::string AddressOf(const Process& process) {
  return absl::StrCat(process.endpoint(), "#", process.generation());
}

}  // namespace

void FormationFeeds::Take(Process* process, const GroupOrder& order) {
  Node& node = nodes_[process];
  if (order.generation <= node.generation) return;
  const Place open = node.open;  // it goes on
  node = {.generation = order.generation, .index = static_cast<int>(order.index)};
  node.open = open;
  for (const scheduler::GroupMember& member : order.members) {
    node.addresses.push_back(member.comm_address);
  }
  const auto fail = [this, process, generation = order.generation] {
    Node& now = nodes_[process];
    if (now.generation == generation && now.stage == Stage::kMaking) now.stage = Stage::kFailed;
  };
  const Scenario& scenario = network_->scenario();
  const TimeUs takes = network_->random().Between(0, 20 * kMillisecondUs);
  process->After(kConnectUnits * scenario.time_scale * kMillisecondUs, fail);
  if (network_->Happens(scenario.formations->feed_failure_chance)) {
    return process->After(takes, fail);
  }
  process->After(takes, [this, process, generation = order.generation] {
    Node& now = nodes_[process];
    if (now.generation != generation) return;
    now.came = true;
    MakeReady(generation);
  });
}

std::pair<int, int> FormationFeeds::LargestOf(const Node& node) {
  std::pair<int, int> largest{node.index, 1};
  for (int size = 2; size <= kRanksMax; size *= 2) {
    const int first = node.index / size * size;
    if (first + size <= static_cast<int>(node.addresses.size())) largest = {first, size};
  }
  return largest;
}

Process* FormationFeeds::MemberAt(const std::string& address) const {
  Process* process = network_->Find(address.substr(0, address.find('#')));
  return process != nullptr && AddressOf(*process) == address ? process : nullptr;
}

bool FormationFeeds::AllCame(const Node& node) const {
  const auto [first, size] = LargestOf(node);
  for (int i = first; i < first + size; ++i) {
    const Process* member = MemberAt(node.addresses[static_cast<size_t>(i)]);
    const auto other = nodes_.find(member);
    if (member == nullptr || other == nodes_.end()) return false;
    if (other->second.generation != node.generation || !other->second.came) return false;
    if (other->second.stage == Stage::kFailed) return false;
  }
  return true;
}

void FormationFeeds::MakeReady(uint64_t generation) {
  for (auto& [process, node] : nodes_) {
    if (node.generation != generation || node.stage != Stage::kMaking || !node.came) continue;
    if (!AllCame(node)) continue;
    node.stage = Stage::kReady;
    for (int size = 2; size <= LargestOf(node).second; size *= 2) {
      const int first = node.index / size * size;
      node.contexts.push_back({ContextOf(node, first, size), node.index - first});
    }
  }
}

FormationFeeds::ContextPtr FormationFeeds::ContextOf(const Node& node, int first, int size) {
  ContextPtr& context = contexts_[{node.generation, first, size}];
  if (context != nullptr) return context;
  context = std::make_shared<Context>(Context{.generation = node.generation, .ends = {}});
  for (int i = first; i < first + size; ++i) {
    Process* member = MemberAt(node.addresses[static_cast<size_t>(i)]);
    context->ends.push_back({.process = member, .incarnation = member->generation(), .told = {}});
  }
  return context;
}

FormationFeeds::Generations FormationFeeds::GenerationsOf(const Process* process) const {
  const auto it = nodes_.find(process);
  if (it == nodes_.end()) return {};
  const Node& node = it->second;
  const bool broken =
      std::any_of(node.contexts.begin(), node.contexts.end(), [](const Place& place) {
        return place.context->ends[static_cast<size_t>(place.rank)].broken;
      });
  Generations generations;
  if (node.stage == Stage::kReady) generations.made = node.generation;
  if (node.stage == Stage::kFailed || broken) generations.failed = node.generation;
  return generations;
}

int FormationFeeds::IndexOf(const Process* process, uint64_t generation) const {
  const auto it = nodes_.find(process);
  return it == nodes_.end() || it->second.generation != generation ? -1 : it->second.index;
}

absl::StatusOr<int> FormationFeeds::Open(Process* process, const scheduler::OpenFeed& feed,
                                         Told told) {
  Node& node = nodes_[process];
  if (node.stage != Stage::kReady) return absl::UnavailableError("no groups are made");
  const auto place =
      std::find_if(node.contexts.begin(), node.contexts.end(), [&feed](const Place& one) {
        return static_cast<int32_t>(one.context->ends.size()) == feed.size;
      });
  if (place == node.contexts.end() || node.index - place->rank != feed.first) {
    return absl::InvalidArgumentError("this instance is in no such subset");
  }
  if (node.generation != feed.generation) {
    return absl::FailedPreconditionError("the communicators are of another generation");
  }
  End& end = place->context->ends[static_cast<size_t>(place->rank)];
  if (end.broken) return absl::UnavailableError("the communicators have broken");
  if (network_->Happens(network_->scenario().formations->feed_failure_chance)) {
    return absl::UnavailableError("the context is gone");
  }
  node.open = *place;
  end.open = true;
  end.told = std::move(told);
  process->After(0, [place = *place] { Read(place.context, place.rank); });
  return place->rank;
}

FormationFeeds::Place FormationFeeds::PlaceOf(const Process* process) const {
  const auto it = nodes_.find(process);
  return it == nodes_.end() ? Place{} : it->second.open;
}

void FormationFeeds::Send(Process* process, int rank, const FeedMessage& message) {
  const Place place = PlaceOf(process);
  const bool other = place.context != nullptr && rank != place.rank && rank >= 0 &&
                     rank < static_cast<int>(place.context->ends.size());
  if (!other) return;
  ++messages_;
  const std::string bytes = scheduler::Encode(message);
  const auto decoded = scheduler::DecodeFeed(std::as_bytes(std::span(bytes)));
  network_->NoteMalformed(decoded.status());
  if (!decoded.ok()) return;
  const Scenario& scenario = network_->scenario();
  TimeUs delay = network_->random().Between(1, kWireUs);
  if (network_->Happens(scenario.formations->feed_spike_chance)) {
    delay += network_->random().Between(0, scenario.spike_us);
  }
  Push(place.context, place.rank, rank, delay,
       [from = place.rank, sent = *decoded](const Told& told) { told.arrived(from, sent); });
}

void FormationFeeds::Push(const ContextPtr& context, int from, int to, TimeUs delay,
                          std::function<void(const Told&)> tell) {
  End& end = context->ends[static_cast<size_t>(to)];
  const Process& sender = *context->ends[static_cast<size_t>(from)].process;
  const TimeUs now = network_->time().now();
  const TimeUs cut = network_->CutUntil(sender.endpoint(), end.process->endpoint());
  TimeUs& last = end.last_arrival_us[from];
  last = std::max({last, now + delay, cut});
  network_->time().At(last, [context, to, tell = std::move(tell)] {
    End& mine = context->ends[static_cast<size_t>(to)];
    if (!mine.process->alive() || mine.process->generation() != mine.incarnation) return;
    mine.process->WhenAwake([context, to, tell] {
      context->ends[static_cast<size_t>(to)].unread.push_back(tell);
      Read(context, to);
    });
  });
}

void FormationFeeds::Read(const ContextPtr& context, int rank) {
  End& end = context->ends[static_cast<size_t>(rank)];
  while (end.open && !end.unread.empty()) {
    const auto tell = std::move(end.unread.front());
    end.unread.pop_front();
    const Told told = end.told;  // it may be closed meanwhile
    tell(told);
  }
}

void FormationFeeds::Close(Process* process, bool broken, const absl::Status& why) {
  const Place place = std::exchange(nodes_[process].open, {});
  if (place.context == nullptr) return;
  End& end = place.context->ends[static_cast<size_t>(place.rank)];
  end.open = false;
  if (!broken) return;
  end.broken = true;
  if (place.context->failure.ok()) {
    place.context->failure = absl::UnavailableError(why.message());
  }
  broken_(place.context);
}

void FormationFeeds::Died(Process* process) {
  nodes_.erase(process);
  for (const auto& [key, context] : contexts_) {
    for (size_t dead = 0; dead < context->ends.size(); ++dead) {
      // Crash has counted the generation already.
      if (context->ends[dead].process != process) continue;
      if (context->ends[dead].incarnation != process->generation() - 1) continue;
      context->ends[dead].open = false;
      if (context->failure.ok()) {
        context->failure = absl::UnavailableError("a rank's process has ended");
      }
      broken_(context);
      for (size_t rank = 0; rank < context->ends.size(); ++rank) {
        if (rank == dead) continue;
        Push(context, static_cast<int>(dead), static_cast<int>(rank),
             network_->random().Between(0, kDeathToldUs),
             [from = static_cast<int>(dead)](const Told& told) {
               told.lost(from, absl::UnavailableError("its process has ended"));
             });
      }
    }
  }
  // Nobody holds those of former generations for long.
  if (contexts_.size() < 64) return;
  std::erase_if(contexts_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

}  // namespace skein::sim
