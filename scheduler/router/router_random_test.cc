// A router over three cells while streams break, orchestrators die and come back without memory,
// and token streams fail. The third cell never fails and has room. Without further attempts no
// client may see an error before its first token, and the tokens of a request are those of one run.
// With them no client sees an error at all, and each has its tokens in order, whichever attempts
// they are of. Each request ends once.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/router/router_core.h"

namespace skein::scheduler {
namespace {

constexpr size_t kCells = 3;
constexpr size_t kSafe = 2;  // the cell that never fails
constexpr int64_t kTokens = 4;

class RandomRouter {
 public:
  RandomRouter(uint64_t seed, bool resumes) : random_(seed), resumes_(resumes) {}

  // False: something was wrong, and was told.
  bool Play(int steps);
  const RouterSnapshot& Snapshot() const { return core_.Snapshot(); }
  int64_t GivenUp() const { return given_up_; }

 private:
  struct PlannedThere {
    bool placed = false;
  };
  // An orchestrator, and what it has sent that the router has not heard yet.
  struct Cell {
    bool up = true;
    bool stream = false;
    uint64_t generation = 1;
    std::map<RequestId, PlannedThere> requests;
    std::deque<RouterEvent> sent;
  };
  struct Run {
    size_t cell = 0;
    Epoch epoch;
    int64_t sent = 0;  // tokens of the answer that it began behind
    int64_t tokens = 0;
    bool operator==(const Run& other) const { return cell == other.cell && epoch == other.epoch; }
  };
  struct Client {
    int64_t tokens = 0;
    Run run;  // of its first token
    bool gone = false;
    int placed = 0;  // attempts that were not moved
    int ends = 0;
  };

  uint64_t Draw(uint64_t below) { return random_() % below; }
  bool Chance(int percent) { return Draw(100) < static_cast<uint64_t>(percent); }
  void Wrong(const std::string& what) {
    ADD_FAILURE() << what;
    wrong_ = true;
  }

  void Do(const RouterEvent& event);
  void On(const OpenLink& effect);
  void On(const CloseLink& effect) { Disconnect(effect.cell); }
  void On(const SendRouterReport& effect) {
    Answer(effect.cell, RouterReportTaken{Report(), effect.cell});
  }
  void On(const SendSubmit& effect);
  void On(const SendRouterEnd& effect) { cells_[effect.cell].requests.erase(effect.end.id); }
  void On(const OpenTokens& effect);
  void On(const CloseTokens& effect) { runs_.erase(effect.id); }
  void On(const DeliverToken& effect);
  void On(const End& effect);
  void On(const Reject& effect) { Wrong("rejected"); }
  void On(const RequestAccepted&) {}
  void On(const SendRouterGoodbye&) {}
  void On(const RouterHasLeft&) {}

  // All tell of the same room; in some of them other routers take it.
  static CellReport Report() { return {.models = {{"m", {50, 0}}}}; }
  static int64_t Capacity(size_t cell) { return cell == kSafe ? 1000 : 2; }
  void Answer(size_t cell, RouterEvent event) {
    if (cells_[cell].stream) cells_[cell].sent.push_back(std::move(event));
  }
  void Disconnect(size_t cell) {
    cells_[cell].stream = false;
    cells_[cell].sent.clear();
  }

  void Arrive();
  void Fault();
  void RunCells();
  void RunTokens();
  bool AllEnded() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& one) { return one.second.ends > 0; });
  }

  // Of the head of an attempt, the tokens that were sent before.
  static HeadPtr HeadOf(const RequestHead& asked, RequestId id, std::span<const int32_t> sent) {
    auto head = std::make_shared<RequestHead>(asked);
    head->id = id;
    head->prompt_tokens += static_cast<int64_t>(sent.size());
    head->max_tokens -= static_cast<int64_t>(sent.size());
    head->names.clear();
    for (const int32_t token : sent) head->names.push_back(absl::StrCat(token));
    return head;
  }

  std::mt19937_64 random_;
  const bool resumes_;
  int64_t given_up_ = 0;
  bool wrong_ = false;
  TimeUs now_ = 0;
  RouterCore core_{RouterConfig{.cells = kCells,
                                .max_streams = 12,
                                .max_queued = 1000,
                                .head_of_attempt = resumes_ ? HeadOf : nullptr}};
  Cell cells_[kCells];
  Run delivering_;  // of the token under way
  uint64_t last_epoch_ = 0;
  uint64_t last_serial_ = 0;
  std::map<RequestId, HeadPtr> heads_;  // of attempts that were submitted
  std::map<RequestId, Run> runs_;       // token streams, by attempt
  std::map<RequestId, Client> clients_;
};

void RandomRouter::Do(const RouterEvent& event) {
  const auto effects = core_.Handle(event, now_);
  const absl::Status invariants = core_.CheckInvariants();
  if (!invariants.ok()) Wrong(invariants.ToString());
  for (const RouterEffect& effect : effects) {
    std::visit([this](const auto& one) { On(one); }, effect);
  }
}

void RandomRouter::On(const OpenLink& effect) {
  Cell& cell = cells_[effect.cell];
  Disconnect(effect.cell);
  if (!cell.up) return;  // the session's timer finds that out
  cell.stream = true;
  RouterWelcome welcome{.generation = {cell.generation, {1 + effect.cell}},
                        .lease_us = 3 * kSecondUs};
  std::set<RequestId> listed;
  for (const RouterEnd& end : effect.hello.ended) cell.requests.erase(end.id);
  for (const RouterRequest& one : effect.hello.requests) {
    listed.insert(one.id);
    if (cell.requests.count(one.id) == 0) welcome.unknown.push_back(one.id);
  }
  std::erase_if(cell.requests, [&](const auto& one) { return listed.count(one.first) == 0; });
  for (auto& [id, request] : cell.requests) request.placed = false;  // it tells them again
  welcome.cell = Report();
  Answer(effect.cell, Welcomed{welcome, effect.cell});
}

void RandomRouter::On(const SendSubmit& effect) {
  const RequestId id = effect.spec->id;
  heads_[id] = effect.spec;
  Cell& cell = cells_[effect.cell];
  if (!cell.stream) return;
  if (!effect.accepted && static_cast<int64_t>(cell.requests.size()) >= Capacity(effect.cell)) {
    const Failed full{absl::ResourceExhaustedError("full")};
    return Answer(effect.cell, PlanUpdateReceived{id, full, effect.cell});
  }
  cell.requests[id] = {};
  Answer(effect.cell, PlanUpdateReceived{id, Accepted{}, effect.cell});
}

void RandomRouter::On(const OpenTokens& effect) {
  if (runs_.count(effect.id) > 0) Wrong("two token streams of one request");
  const HeadPtr& head = heads_.at(effect.id);
  Client& client = clients_.at(effect.id.First());
  ++client.placed;
  const auto sent = static_cast<int64_t>(head->names.size());
  if (sent != client.tokens) Wrong("an attempt begins where its client is not");
  for (int64_t i = 0; i < sent; ++i) {
    if (head->names[static_cast<size_t>(i)] != absl::StrCat(100 + i))
      Wrong("another token was sent");
  }
  runs_[effect.id] = {.cell = effect.decode.value, .epoch = effect.epoch, .sent = sent};
}

void RandomRouter::On(const DeliverToken& effect) {
  Client& client = clients_.at(effect.id);
  if (effect.index != client.tokens || effect.token != 100 + client.tokens) Wrong("another token");
  if (client.tokens++ == 0) client.run = delivering_;
  if (!resumes_ && !(client.run == delivering_)) Wrong("tokens of two runs");
  if (client.ends > 0) Wrong("a token after the end");
}

void RandomRouter::On(const End& effect) {
  Client& client = clients_.at(effect.id);
  if (++client.ends > 1) Wrong("ended twice");
  // With attempts, only what was placed too often is given up, as when its orchestrators die.
  const bool given_up = resumes_ && client.placed >= AttemptLosses::kShortMax;
  given_up_ += given_up && !effect.status.ok() ? 1 : 0;
  const bool honest =
      effect.status.ok() || client.gone || given_up || (client.tokens > 0 && !resumes_);
  if (!honest) Wrong(absl::StrCat(ToString(effect.id), ": ", effect.status.ToString()));
  if (effect.status.ok() && client.tokens != kTokens) Wrong("half an answer");
}

void RandomRouter::Arrive() {
  auto spec = std::make_shared<RequestHead>();
  spec->id = {7, ++last_serial_};
  spec->model = "m";
  spec->prompt_tokens = 1;
  spec->max_tokens = kTokens;
  clients_[spec->id] = {};
  spec->tenant = std::string(Draw(3), 't');
  spec->tenant_weight = 1 + static_cast<int64_t>(spec->tenant.size());
  spec->ttft_goal_us = Draw(2) == 0 ? 0 : static_cast<TimeUs>(Draw(3) * kSecondUs);
  Do(Arrived{spec, {}, Draw(5)});
}

void RandomRouter::Fault() {
  const size_t number = Draw(kSafe);
  Cell& cell = cells_[number];
  switch (Draw(4)) {
    case 0:  // its stream breaks
      if (!cell.stream) return;
      Disconnect(number);
      return Do(LinkBroken{absl::UnavailableError("cut"), number});
    case 1:  // it dies
      if (!cell.up) return;
      cell.up = false;
      cell.requests.clear();
      if (!cell.stream) return;
      Disconnect(number);
      return Do(LinkBroken{absl::UnavailableError("died"), number});
    case 2:  // another one is started
      if (cell.up || Chance(70)) return;
      ++cell.generation;
      cell.up = true;
      return;
    default:
      if (clients_.empty()) return;
      auto one = clients_.begin();
      std::advance(one, static_cast<std::ptrdiff_t>(Draw(clients_.size())));
      if (one->second.ends > 0 || Chance(80)) return;
      one->second.gone = true;
      Do(ClientGone{one->first});
  }
}

// Orchestrators plan and place, and the router hears some of what they sent.
void RandomRouter::RunCells() {
  for (size_t number = 0; number < kCells; ++number) {
    Cell& cell = cells_[number];
    for (auto& [id, request] : cell.requests) {
      if (request.placed || !cell.stream || Chance(80)) continue;
      request.placed = true;
      const Epoch epoch{++last_epoch_};
      Answer(number, PlanUpdateReceived{id, Planned{epoch, {number}}, number});
      Answer(number, PlanUpdateReceived{id, Placed{epoch, {number}, "d", {number}}, number});
    }
    for (uint64_t heard = Draw(8); heard > 0 && !cell.sent.empty(); --heard) {
      const RouterEvent event = std::move(cell.sent.front());
      cell.sent.pop_front();
      Do(event);
    }
  }
}

void RandomRouter::RunTokens() {
  std::vector<RequestId> ids;
  for (const auto& [id, run] : runs_) ids.push_back(id);
  for (const RequestId id : ids) {
    const auto it = runs_.find(id);
    if (it == runs_.end() || Chance(50)) continue;
    Run& run = it->second;
    // Its attempts are not lost so often that it is given up.
    const bool may_lose = clients_.at(id.First()).placed + 1 < AttemptLosses::kShortMax;
    if (run.cell != kSafe && may_lose && Chance(resumes_ ? 15 : 5)) {
      const Epoch epoch = run.epoch;
      const auto known = cells_[run.cell].requests.find(id);
      if (known != cells_[run.cell].requests.end()) known->second.placed = false;
      runs_.erase(it);
      Do(TokenStreamLost{id, epoch, absl::UnavailableError("lost")});
    } else if (run.tokens > 0 && Chance(5)) {
      const uint64_t moves = Snapshot().moves;
      Do(StreamLeaving{id, run.epoch});
      if (Snapshot().moves > moves) --clients_.at(id.First()).placed;
    } else if (run.sent + run.tokens < kTokens) {
      delivering_ = run;
      const auto token = static_cast<int32_t>(100 + run.sent + run.tokens);
      Do(TokenReceived{id, run.epoch, run.tokens++, token, "", ""});
    } else {
      const Run ended = run;
      runs_.erase(it);
      Do(FinishedReceived{id, ended.epoch, FinishReason::kLength, {}, ended.tokens, -1, ""});
    }
  }
}

bool RandomRouter::Play(int steps) {
  Do(Join{{.router = 7, .endpoint = "r:1"}});
  for (int step = 0; !wrong_; ++step) {
    const bool heals = step >= steps;
    if (heals && AllEnded()) break;
    if (step > steps + 5000) {
      Wrong("requests do not end");
      break;
    }
    if (heals) {
      for (Cell& cell : cells_) cell.up = true;
    } else {
      if (Chance(20)) Arrive();
      if (Chance(10)) Fault();
    }
    RunCells();
    RunTokens();
    now_ += static_cast<TimeUs>(Draw(200'000));
    if (core_.NextDeadline() <= now_) Do(RouterTick{});
  }
  return !wrong_;
}

TEST(RandomRouter, NoCellsFaultIsSeenBeforeTheFirstToken) {
  uint64_t refused = 0, lost = 0;  // and moved
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RandomRouter router(seed, /*resumes=*/false);
    ASSERT_TRUE(router.Play(600)) << "seed " << seed;
    refused += router.Snapshot().moved_refused;
    lost += router.Snapshot().moved_lost;
    EXPECT_EQ(router.Snapshot().resumes, 0u);
    EXPECT_EQ(router.Snapshot().moves, 0u);
  }
  EXPECT_GT(refused, 200u);
  EXPECT_GT(lost, 200u);
}

TEST(RandomRouter, NoCellsFaultIsSeenAtAllIfRequestsAreResumed) {
  uint64_t resumes = 0, moves = 0, finished = 0;
  int64_t given_up = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RandomRouter router(seed, /*resumes=*/true);
    ASSERT_TRUE(router.Play(600)) << "seed " << seed;
    resumes += router.Snapshot().resumes;
    moves += router.Snapshot().moves;
    finished += router.Snapshot().finished;
    given_up += router.GivenUp();
  }
  EXPECT_GT(resumes, 1000u);
  EXPECT_GT(moves, 100u);
  EXPECT_LT(given_up, static_cast<int64_t>(finished / 100));
}

}  // namespace
}  // namespace skein::scheduler
