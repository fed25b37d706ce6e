// The load and the player against a server whose answers are broken on purpose: each bug is caught
// and called by its kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>

#include "nlohmann/json.hpp"
#include "services/http/server.h"
#include "services/skeinctl/chaos/batch_load.h"
#include "services/skeinctl/chaos/chaos_load.h"
#include "services/skeinctl/chaos/chaos_player.h"
#include "services/skeinctl/chaos/formation_orders.h"
#include "services/skeinctl/chaos/handoff_load.h"

namespace skein::services::chaos {
namespace {

using Json = nlohmann::json;
using ResponderPtr = std::shared_ptr<http::Responder>;

constexpr int64_t kTokens = 40;
constexpr int64_t kStreams = 3;

// The right answer to a prompt: no token of it comes again.
std::vector<int32_t> TokensFor(const Json& prompt, int64_t count) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(prompt[0].get<int64_t>() * 1000 + i));
  }
  return tokens;
}

std::string Event(int32_t token, bool last) {
  const Json choice = {{"text", "w" + std::to_string(token) + " "},
                       {"token_ids", {token}},
                       {"finish_reason", last ? Json("length") : Json()}};
  return "data: " + Json({{"choices", {choice}}}).dump() + "\n\n";
}

// A router that sends the first token at once and holds the rest back until Release. `spoil`
// changes an answer's tokens.
class FakeRouter {
 public:
  using Spoil = std::function<void(std::vector<int32_t>*)>;

  FakeRouter() {
    routes_.Add("POST", "/v1/completions",
                [this](const http::Request& request, ResponderPtr responder) {
                  OnRequest(Json::parse(request.body), std::move(responder));
                });
    auto server = http::Server::Start({.threads = 2}, [this](http::Request request, auto to) {
      routes_.Serve(std::move(request), std::move(to));
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  bench::Url ToUrl() const {
    return {.host = "127.0.0.1", .port = std::to_string(server_->port()), .path = ""};
  }

  void Hold() {
    std::lock_guard lock(mu_);
    holds_ = true;
  }
  void Release() {
    std::lock_guard lock(mu_);
    holds_ = false;
    for (auto& [responder, tokens] : held_) Finish(responder, std::move(tokens));
    held_.clear();
  }
  void SpoilBy(Spoil spoil) {
    std::lock_guard lock(mu_);
    spoil_ = std::move(spoil);
  }
  // Answers that have begun and not ended.
  int64_t Open() {
    std::lock_guard lock(mu_);
    return open_;
  }
  // The next requests are answered with this status.
  void Refuse(int status) {
    std::lock_guard lock(mu_);
    refusal_ = status;
  }

 private:
  void OnRequest(const Json& asked, ResponderPtr responder) {
    std::lock_guard lock(mu_);
    if (refusal_ != 0) {
      http::Response refusal;
      refusal.status = refusal_;
      refusal.body = R"({"error":{"message":"refused on purpose"}})";
      return responder->Send(std::move(refusal));
    }
    auto tokens = TokensFor(asked["prompt"], asked["max_tokens"]);
    http::Response head;
    head.content_type = "text/event-stream";
    responder->StartStream(std::move(head));
    ++open_;
    responder->Write(Event(tokens.front(), false));
    tokens.erase(tokens.begin());
    if (!holds_) return Finish(responder, std::move(tokens));
    held_.emplace_back(std::move(responder), std::move(tokens));
  }

  void Finish(const ResponderPtr& responder, std::vector<int32_t> tokens) {
    if (spoil_) spoil_(&tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      responder->Write(Event(tokens[i], i + 1 == tokens.size()));
    }
    responder->Write("data: [DONE]\n\n");
    responder->Finish();
    --open_;
  }

  std::mutex mu_;
  bool holds_ = false;
  int64_t open_ = 0;
  int refusal_ = 0;
  Spoil spoil_;
  std::vector<std::pair<ResponderPtr, std::vector<int32_t>>> held_;
  http::Routes routes_;
  std::unique_ptr<http::Server> server_;  // last: its threads use the above
};

// A decode process, whose death makes the router hold its streams until it is started again, or
// until it has ended, where another one takes them.
class FakeTarget final : public ChaosTarget {
 public:
  explicit FakeTarget(FakeRouter* router) : router_(*router) {}

  absl::StatusOr<std::vector<ChaosProcess>> Processes() override {
    std::vector<ChaosProcess> processes = {
        {.name = "decode-0", .role = "decode", .pid = 7, .running = 1, .serving = alive_}};
    if (has_another) processes.push_back({.name = "decode-1", .role = "decode", .serving = true});
    return processes;
  }
  absl::Status Allows(Fault fault) const override {
    return fault == Fault::kStop ? absl::UnimplementedError("it cannot be stopped")
                                 : absl::OkStatus();
  }
  absl::Status AllowsAbsence() const override {
    return comes_back_at_once ? absl::UnimplementedError("it comes back at once")
                              : absl::OkStatus();
  }
  absl::Status Break(const ChaosProcess&, Fault fault) override {
    orders += std::string(NameOf(fault)) + " ";
    alive_ = false;
    return absl::OkStatus();
  }
  absl::Status End(const ChaosProcess&, Fault) override {
    orders += "end ";
    if (has_another) router_.Release();
    return absl::OkStatus();
  }
  absl::Status Restart(const ChaosProcess&) override {
    orders += "restart ";
    alive_ = true;
    open_at_restart = router_.Open();
    router_.Release();
    return absl::OkStatus();
  }
  std::string Describe() const override { return "fakes"; }

  std::string orders;
  bool has_another = false;
  bool comes_back_at_once = false;
  int64_t open_at_restart = -1;  // answers that had begun and not ended

 private:
  FakeRouter& router_;
  bool alive_ = true;
};

class PlayTest : public ::testing::Test {
 protected:
  LoadOptions Options() const {
    return {.routers = {router_.ToUrl()},
            .model = "m",
            .api_key = "",
            .requests = {{.prompt = {1, 2}, .output_tokens = kTokens},
                         {.prompt = {2, 2}, .output_tokens = kTokens, .temperature = 0.5}},
            .streams = kStreams,
            .hung_after = std::chrono::minutes(10)};
  }

  // A row of the scenario kill-decode, after right answers to each request alone.
  Row PlayKill(const FakeRouter::Spoil& spoil) { return Play("kill-decode", spoil); }

  Row Play(const char* scenario, const FakeRouter::Spoil& spoil) {
    router_.Release();
    ChaosLoad load(Options());
    EXPECT_TRUE(load.Open().ok());
    std::vector<Reference> references;
    for (size_t i = 0; i < 2; ++i) {
      auto alone = load.Alone(i);
      EXPECT_TRUE(alone.ok()) << alone.status();
      references.push_back(ReferenceOf(Options().requests[i], *alone));
    }
    router_.SpoilBy(spoil);
    router_.Hold();
    ChaosPlayer player(&target_, &load, references,
                       {.streams = kStreams,
                        .probes = 2,
                        .restart_after_s = 0,
                        .fault_every_s = 86400,
                        .duration_s = 0.01,
                        .spare = {},
                        .stall_s = 60},
                       {}, [](const std::string&) {});
    const auto row = player.Play(*FindScenario(scenario));
    EXPECT_TRUE(row.ok()) << row.status();
    return row.ok() ? *row : Row();
  }

  FakeRouter router_;
  FakeTarget target_{&router_};
};

TEST_F(PlayTest, AFaultThatNobodyNoticesMakesAGoodRow) {
  const Row row = PlayKill(nullptr);
  EXPECT_EQ(target_.orders, "kill end restart ");
  EXPECT_EQ(row.running(), kStreams);
  EXPECT_GE(row.requests, kStreams + 2) << "the streams and the probes";
  EXPECT_EQ(row.failed + row.wrong + row.lost + row.doubled + row.hung, 0);
  EXPECT_GE(row.recovery_s(), 0);
  EXPECT_TRUE(row.good());
}

TEST_F(PlayTest, OneThatIsTakenAwayComesBackWhenAllStreamsHaveEnded) {
  target_.has_another = true;
  const Row row = Play("scale-in-decode", nullptr);
  EXPECT_EQ(target_.orders, "term end restart ");
  EXPECT_EQ(target_.open_at_restart, 0);
  EXPECT_EQ(row.running(), kStreams);
  EXPECT_TRUE(row.good());
}

TEST_F(PlayTest, OneIsTakenAwayOnlyWhereAnotherTakesItsStreamsAndNobodyStartsIt) {
  EXPECT_EQ(Play("scale-in-decode", nullptr).skipped, "no other decode serves here");
  target_.has_another = target_.comes_back_at_once = true;
  EXPECT_EQ(Play("scale-in-decode", nullptr).skipped, "it comes back at once");
  EXPECT_EQ(target_.orders, "");
}

TEST_F(PlayTest, ADroppedTokenIsCaught) {
  const Row row = PlayKill([](auto* tokens) { tokens->erase(tokens->begin() + 5); });
  EXPECT_EQ(row.lost, row.requests);
  EXPECT_EQ(row.doubled + row.wrong, 0);
  EXPECT_FALSE(row.good());
}

TEST_F(PlayTest, ARepeatedTokenIsCaught) {
  const Row row = PlayKill([](auto* tokens) { tokens->insert(tokens->begin() + 6, (*tokens)[5]); });
  EXPECT_EQ(row.doubled, row.requests);
  EXPECT_EQ(row.lost + row.wrong, 0);
  EXPECT_FALSE(row.good());
}

TEST_F(PlayTest, AChangedTokenIsCaught) {
  const Row row = PlayKill([](auto* tokens) { (*tokens)[7] = 1; });
  EXPECT_EQ(row.wrong, row.requests);
  EXPECT_EQ(row.lost + row.doubled, 0);
  EXPECT_FALSE(row.good());
}

TEST_F(PlayTest, FaultsByChanceEndWithTheirDurationThoughTheNextOneIsFarAway) {
  const Row row = Play("random", nullptr);
  EXPECT_EQ(row.faults.size(), 1U);
  EXPECT_TRUE(row.good());
}

TEST_F(PlayTest, WhatTheTargetDoesNotAllowIsSkipped) {
  ChaosLoad load(Options());
  ASSERT_TRUE(load.Open().ok());
  ChaosPlayer player(&target_, &load, {}, {.spare = {}}, {}, [](const std::string&) {});
  EXPECT_EQ(player.Play(*FindScenario("stop-decode"))->skipped, "it cannot be stopped");
  EXPECT_EQ(player.Play(*FindScenario("handoff-kill-decode"))->skipped,
            "nobody tells of handoffs here");
  EXPECT_EQ(player.Play(*FindScenario("kill-prefill"))->skipped,
            "no prefill that may be broken serves here");
  EXPECT_EQ(target_.orders, "");
}

TEST_F(PlayTest, ARefusalGoesToTheNextRouterAndIsAFailureAtTheLast) {
  FakeRouter other;
  LoadOptions options = Options();
  options.routers.push_back(other.ToUrl());
  ChaosLoad load(options);
  ASSERT_TRUE(load.Open().ok());
  router_.Refuse(503);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(load.Alone(0).ok());  // by turns to both
  other.Refuse(503);
  const auto refused = load.Alone(0);
  EXPECT_EQ(refused.status().message(), "a request by itself failed: HTTP 503: refused on purpose");
}

TEST(ChaosLoad, ARouterIsFoundByItsAddressOrItsPort) {
  const std::vector<bench::Url> routers = {{.host = "127.0.0.1", .port = "8000", .path = ""},
                                           {.host = "127.0.0.1", .port = "8001", .path = ""},
                                           {.host = "10.0.0.2", .port = "8001", .path = ""}};
  EXPECT_EQ(RouterAmong(routers, "127.0.0.1:8001"), 1);
  EXPECT_EQ(RouterAmong(routers, "this-host:8000"), 0);
  EXPECT_EQ(RouterAmong(routers, "this-host:8001"), -1) << "two have this port";
  EXPECT_EQ(RouterAmong(routers, "this-host:9"), -1);
  EXPECT_EQ(RouterAmong(routers, ""), -1);
}

TEST(VictimAmong, IsTheLeaderOrAStandby) {
  std::vector<ChaosProcess> processes = {
      {.name = "a", .role = "orchestrator", .serving = true},
      {.name = "b", .role = "orchestrator", .leads = true, .serving = true}};
  EXPECT_EQ(VictimAmong(processes, "orchestrator", {})->name, "b");
  EXPECT_EQ(VictimAmong(processes, "standby", {})->name, "a");
  EXPECT_EQ(VictimAmong(processes, "standby", {"a"}), nullptr);
  EXPECT_EQ(VictimAmong(processes, "orchestrator", {"b"}), nullptr) << "not another one instead";
  processes[1].leads = false;
  EXPECT_EQ(VictimAmong(processes, "orchestrator", {})->name, "a") << "nobody is known to lead";
  EXPECT_EQ(VictimAmong(processes, "standby", {}), nullptr);
}

TEST(Scenarios, AreAskedForByTheirNameTheirMomentOrAll) {
  const Scenario& handoff = *FindScenario("handoff-stop-prefill");
  EXPECT_TRUE(Asks("handoff-stop-prefill", handoff));
  EXPECT_TRUE(Asks("handoff", handoff));
  EXPECT_FALSE(Asks("bind", handoff));
  EXPECT_FALSE(Asks("all", handoff)) << "they take long";
  EXPECT_TRUE(Asks("all", *FindScenario("kill-decode")));
  EXPECT_FALSE(Asks("", *FindScenario("kill-decode")));
  EXPECT_TRUE(Asks("all", *FindScenario("partition-both-decode")));
  EXPECT_TRUE(Asks("handoff", *FindScenario("handoff-term-prefill")));
  EXPECT_EQ(FindScenario("bind-term-decode"), nullptr);
}

// A case for each of two machines: one that lets the network be broken, one that does not.
TEST(Scenarios, OfTheNetworkAreInAllWhereTheyCanBePlayed) {
  int asked = 0;
  const auto allowed = [&asked](Fault) {
    ++asked;
    return absl::OkStatus();
  };
  const auto refused = [&asked](Fault) {
    ++asked;
    return absl::PermissionDeniedError("they need root");
  };
  const auto names = [](const Choice& choice) {
    std::vector<std::string> all;
    all.reserve(choice.scenarios.size());
    for (const Scenario* one : choice.scenarios) all.push_back(one->name);
    return all;
  };
  const auto has = [&](const Choice& choice, const std::string& name) {
    const auto all = names(choice);
    return std::count(all.begin(), all.end(), name) == 1;
  };
  const Choice whole = Choose({"all"}, allowed);
  EXPECT_TRUE(has(whole, "kill-decode") && has(whole, "loss-router"));
  EXPECT_FALSE(has(whole, "random"));
  EXPECT_EQ(whole.left_out, "");
  EXPECT_EQ(asked, 1);

  const Choice without = Choose({"all"}, refused);
  EXPECT_TRUE(has(without, "kill-decode"));
  EXPECT_FALSE(has(without, "loss-router"));
  const size_t left_out = whole.scenarios.size() - without.scenarios.size();
  EXPECT_EQ(without.left_out, "The " + std::to_string(left_out) +
                                  " scenarios of the network are left out: they need root.");

  // One that is named is not left out: its row says why it was not played.
  const Choice one = Choose({"all", "loss-router"}, refused);
  EXPECT_TRUE(has(one, "loss-router"));
  EXPECT_EQ(one.scenarios.size(), without.scenarios.size() + 1);
  asked = 0;
  EXPECT_EQ(names(Choose({"loss-router", "bind"}, refused)).front(), "none");
  EXPECT_EQ(asked, 0);
}

TEST(AddCounts, AddsEachKind) {
  Row row;
  row.requests = 3;
  row.kinds["greedy"].requests = 3;
  Row handed;
  handed.requests = handed.kinds["handoff"].requests = 2;
  handed.near_ties = handed.kinds["handoff"].near_ties = 1;
  handed.errors["HTTP 500: x"] = 1;
  AddCounts(handed, &row);
  AddCounts(handed, &row);
  EXPECT_EQ(row.requests, 7);
  EXPECT_EQ(row.near_ties, 2);
  EXPECT_EQ(row.kinds["greedy"].requests, 3);
  EXPECT_EQ(row.kinds["handoff"].requests, 4);
  EXPECT_EQ(row.kinds["handoff"].near_ties, 2);
  EXPECT_EQ(row.errors["HTTP 500: x"], 2);
}

TEST(HandoffsUnderWay, HaveAPlaceAndNotYetAllTheirKv) {
  v1::ListRequestsResponse requests;
  const auto add = [&requests](uint64_t serial) {
    auto* one = requests.add_requests();
    one->mutable_id()->set_router(7);
    one->mutable_id()->set_serial(serial);
    return one;
  };
  add(1);
  add(2)->set_placed_s(0.1);
  auto* taken = add(3);
  taken->set_placed_s(0.1);
  taken->set_prefilled_s(0.2);
  auto* failed = add(4);
  failed->set_placed_s(0.1);
  failed->set_ended_s(0.2);
  EXPECT_EQ(HandoffsUnderWay(requests), (std::vector<std::string>{"7/2"}));
}

TEST(SwitchUnderWay, IsAFormationThatDoesNotStand) {
  v1::ListGroupsResponse groups;
  auto* group = groups.add_groups();
  group->add_formations()->set_stage("stands");
  EXPECT_EQ(SwitchUnderWay(groups), "");
  group->add_formations()->set_stage("preparing");
  EXPECT_EQ(SwitchUnderWay(groups), "preparing");
}

TEST(VictimAmong, HasMostRequestsAndIsNeitherSparedNorElsewhere) {
  const std::vector<ChaosProcess> processes = {
      {.name = "a", .role = "decode", .running = 1, .serving = true},
      {.name = "b", .role = "decode", .running = 5, .serving = true},
      {.name = "c", .role = "decode", .running = 9, .serving = true, .reachable = false},
      {.name = "d", .role = "decode", .running = 9, .serving = false},
      {.name = "e", .role = "prefill", .running = 9, .serving = true}};
  EXPECT_EQ(VictimAmong(processes, "decode", {})->name, "b");
  EXPECT_EQ(VictimAmong(processes, "decode", {"b"})->name, "a");
  EXPECT_EQ(VictimAmong(processes, "decode", {"a", "b"}), nullptr);
}

TEST(BatchLoad, ALineAsksOneOfTheRequests) {
  StreamRequest request{.prompt = {4, 5}, .output_tokens = 6, .streamed = false};
  const Json line = Json::parse(BatchLine("m", {request, request}, 3));
  EXPECT_EQ(line["custom_id"], "line-3");
  EXPECT_EQ(line["method"], "POST");
  EXPECT_EQ(line["url"], "/v1/completions");
  EXPECT_EQ(line["body"]["model"], "m");
  EXPECT_EQ(line["body"]["prompt"], Json({4, 5}));
  EXPECT_EQ(line["body"]["max_tokens"], 6);
  EXPECT_FALSE(line["body"].contains("stream"));
}

TEST(BatchLoad, WhatIsWrongWithAnOutputIsCountedByKind) {
  const auto line = [](const std::string& name, const std::vector<int32_t>& tokens) {
    const Json body = {{"choices", Json::array({{{"token_ids", tokens}}})}};
    return Json({{"custom_id", name}, {"response", {{"status_code", 200}, {"body", body}}}})
               .dump() +
           "\n";
  };
  std::vector<Reference> references(2);
  references[0].choices = {{.tokens = {1, 2}}};
  references[1].choices = {{.tokens = {3}}};
  const std::string right = line("line-2", {1, 2}) + line("line-0", {1, 2}) + line("line-1", {3});
  const Counts good = JudgeBatch(right, 3, references);
  EXPECT_TRUE(good.good());
  EXPECT_EQ(good.requests, 3);
  EXPECT_EQ(good.tokens, 5);
  EXPECT_EQ(JudgeBatch(right, 4, references).lost, 1);
  EXPECT_EQ(JudgeBatch(right + line("line-1", {3}), 3, references).doubled, 1);
  EXPECT_EQ(JudgeBatch(right + line("line-3", {4}), 4, references).wrong, 1);
  EXPECT_EQ(JudgeBatch(right + line("line-3", {3}), 3, references).wrong, 1) << "no line of it";
  EXPECT_EQ(JudgeBatch(right + "{\n", 3, references).wrong, 1);
  const Json refused = {{"custom_id", "line-3"}, {"response", nullptr}, {"error", {{"code", "x"}}}};
  const Counts failed = JudgeBatch(right + refused.dump() + "\n", 4, references);
  EXPECT_EQ(failed.failed, 1);
  EXPECT_EQ(failed.lost, 0);
  EXPECT_FALSE(failed.good());
}

}  // namespace
}  // namespace skein::services::chaos
