#include "tests/sim/router_process.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/codec/codec.h"
#include "tests/sim/long_limits.h"
#include "tests/sim/worker_process.h"

namespace skein::sim {

using namespace scheduler;  // NOLINT: the messages, all of them

void RouterProcess::OnStart() {
  RouterConfig config;
  config.max_streams = network_->scenario().router_streams;
  config.max_queued = network_->scenario().router_queue;
  const TimeUs unit_us = network_->scenario().time_scale * kMillisecondUs;
  config.request_deadline_us = network_->scenario().request_deadline_ms * unit_us;
  config.orchestrator_wait_us = 3000 * unit_us;
  config.head_of_attempt = services::EncodeAttempt;
  config.resume_wait_us = network_->scenario().Resumes() ? 3000 * unit_us : 0;
  config.session = {.report_us = 50 * unit_us,
                    .report_spacing_us = 5 * unit_us,
                    .answer_timeout_us = 200 * unit_us,
                    .retry_us = 30 * unit_us};
  tokens_ = std::make_unique<TokenStreamClient>(kCredit,
                                                network_->scenario().Resumes() ? 50 * unit_us : 0);
  tokens_due_us_ = kNever;
  cell_.Start(this, network_->scenario());
  incarnation_ = kRouter + kRouterNumbers * number_ + generation() / 2;
  Run(std::make_unique<RouterCore>(config));
  Dispatch(Join{{.router = incarnation_, .endpoint = endpoint(), .host = "h"}});
}

namespace {

// 2 s of the product's time, 1.5 s of which the decode worker waits for the router to come back. It
// does not notice the death of one that it has not heard of yet; then leases end.
TimeUs FreedWithinUs(const Scenario& scenario, bool was_heard) {
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  const TimeUs noticed_us = 200 * unit_us + 2 * scenario.step_us;
  if (was_heard) return noticed_us;
  return noticed_us + (scenario.instance_lease_ms + scenario.attach_lease_ms) * unit_us;
}

}  // namespace

// The clients' connections end.
void RouterProcess::OnCrash() {
  draining_ = false;
  token_links_.clear();
  link_.reset();
  for (auto& [id, client] : clients_) {
    if (client.ends > 0) continue;
    --open_;
    ++client.ends;
    ++abandoned_clients_;
    client.status = absl::UnavailableError("the router died");
    (*abandoned_)[client.plan.spec->id] =
        network_->time().now() + FreedWithinUs(network_->scenario(), !client.tokens.empty());
  }
}

void RouterProcess::Arrive(const ClientPlan& plan) {
  if (draining_) {  // its client comes again
    ++turned_away_;
    VirtualTime& time = network_->time();
    time.At(time.now() + 10 * kMillisecondUs, [this, &plan] {
      --turned_away_;
      Arrive(plan);
    });
    return;
  }
  auto spec = std::make_shared<RequestSpec>(*plan.spec);
  spec->id.router = incarnation_;
  if (spec->prompt_of.has_value()) spec->prompt_of->router = incarnation_;
  const RequestId id = spec->id;
  Client client;
  client.waits_since_us = network_->time().now();
  client.plan = plan;
  client.plan.spec = spec;
  if (!plan.impossible && !plan.unknown_model) {
    client.expected = ExpectedAnswer(*plan.spec, network_->scenario().kv_heads);
  }
  if (plan.poison != absl::StatusCode::kOk) {
    client.expected.tokens.resize(static_cast<size_t>(plan.tokens_before_poison));
  }
  ++open_;
  Client& arrived = clients_.emplace(id.serial, std::move(client)).first->second;
  if (!alive()) {
    --open_;
    ++arrived.ends;
    ++abandoned_clients_;
    arrived.status = absl::UnavailableError("connection refused");
    return;
  }
  if (plan.leaves_us != kNever) {
    After(std::max<TimeUs>(plan.leaves_us - network_->time().now(), 0), [this, id] {
      (*departures_)[id] = network_->time().now();
      Dispatch(ClientGone{id});
    });
  }
  Dispatch(Arrived{services::Encode(*spec)});
}

bool RouterProcess::AllEnded() const {
  if (turned_away_ > 0) return false;
  for (const auto& [id, client] : clients_) {
    if (client.ends == 0) return false;
  }
  return true;
}

void RouterProcess::Violated(const Client& client, const std::string& what) {
  verdict_->Violated(absl::StrCat("request ", client.plan.spec->id.serial, ": ", what));
}

void RouterProcess::NoteWait(Client& client) {
  const TimeUs now = network_->time().now();
  client.longest_wait_us = std::max(client.longest_wait_us, now - client.waits_since_us);
  client.waits_since_us = now;
}

std::map<uint64_t, TimeUs> RouterProcess::LongestWaits() const {
  std::map<uint64_t, TimeUs> waits;
  for (const auto& [serial, client] : clients_) waits[serial] = client.longest_wait_us;
  return waits;
}

void RouterProcess::Ended(Client& client, absl::Status status) {
  NoteWait(client);
  if (++client.ends > 1) {
    Violated(client, "ended twice");
  } else {
    --open_;
  }
  client.status = std::move(status);
  CheckPoison(client);
  CheckHonest(client, client.status);
}

// What one sequence fails with is the answer of its own request, and of no other.
void RouterProcess::CheckPoison(const Client& client) {
  const absl::StatusCode code = client.status.code();
  const absl::StatusCode poison = client.plan.poison;
  if (poison != absl::StatusCode::kOk && client.status.ok()) Violated(client, "poison was served");
  if (poison == code && poison != absl::StatusCode::kOk) ++failed_alone_;
  const bool sequence_failed =
      code == absl::StatusCode::kInternal || code == absl::StatusCode::kInvalidArgument;
  const bool two_engines =  // by the faults
      !network_->scenario().faultless &&
      client.status.message().find("it is not planned again") != absl::string_view::npos;
  const bool own = code == poison || two_engines || FailsEngines(*client.plan.spec) ||
                   LacksGroup(network_->scenario(), client.plan, client.status) ||
                   (client.plan.impossible && absl::IsInvalidArgument(client.status));
  if (sequence_failed && !own) {
    Violated(client, absl::StrCat("failed by another: ", client.status.ToString()));
  }
}

// Why a request may end without an answer.
void RouterProcess::CheckHonest(const Client& client, const absl::Status& status) {
  const ClientPlan& plan = client.plan;
  if (absl::IsResourceExhausted(status) && client.accepted) {
    Violated(client, "refused after it was accepted");
  }
  // Every wait is far shorter than the deadline that requests get without asking for one. A long
  // answer that was lost and goes on may take longer in all.
  const Scenario& scenario = network_->scenario();
  const TimeUs half_us = scenario.request_deadline_ms * scenario.time_scale * kMillisecondUs / 2;
  const bool goes_on = network_->time().now() - client.last_token_us < half_us;
  if (plan.spec->deadline_us == 0 && !goes_on && absl::IsDeadlineExceeded(status) &&
      status.message().find("request's deadline") != absl::string_view::npos) {
    Violated(client, "stuck until its deadline");
  }
  if (network_->scenario().no_excuse && !status.ok()) {
    Violated(client, absl::StrCat("failed with room to spare: ", status.ToString()));
  }
  const bool pointed = scenario.pointed.has_value();  // nothing else breaks
  if (!(scenario.faultless || pointed) || status.ok()) return;
  if (FailsEngines(*plan.spec)) {
    const bool honest = absl::IsInternal(status) || absl::IsResourceExhausted(status);
    if (!honest) Violated(client, absl::StrCat("it failed engines: ", status.ToString()));
    return;
  }
  const bool expected = status.code() == absl::StatusCode::kResourceExhausted ||
                        (plan.leaves_us != kNever && absl::IsCancelled(status)) ||
                        (plan.spec->deadline_us > 0 && absl::IsDeadlineExceeded(status)) ||
                        (plan.impossible && absl::IsInvalidArgument(status)) ||
                        status.code() == plan.poison ||
                        (LacksGroup(scenario, plan, status) && OperatorsMayKeepGroups(scenario)) ||
                        (plan.unknown_model && absl::IsNotFound(status)) ||
                        (pointed && absl::IsUnavailable(status) && struck_(client.decode));
  if (!expected) Violated(client, absl::StrCat("failed without a fault: ", status.ToString()));
}

void RouterProcess::Execute(Reject& effect) {
  if (effect.retry_after_us < kSecondUs) Violated(ClientOf(effect.id), "retry at once");
  Ended(ClientOf(effect.id), effect.status);
}

void RouterProcess::Execute(OpenLink& effect) {
  effect.hello.load.draining = draining_;
  HeardInstances::Told heard = tokens_->heard().TellAll(0);
  effect.hello.load.heard = std::move(heard.heard);
  effect.hello.load.not_heard = std::move(heard.not_heard);
  cell_.BeginRound();
  OpenLinkWith(network_->Encoded(effect.hello));
}

void RouterProcess::OpenLinkWith(const RouterHello& hello) {
  const uint64_t number = ++links_;
  welcome_ = {};
  link_ = network_->OpenDuplex(
      this, cell_.Ask(),
      [this, number, hello](Process* callee, std::shared_ptr<Duplex> stream) {
        static_cast<OrchestratorProcess*>(callee)->ConnectRouter(
            stream,
            [this, number](const RouterMessage& message) {
              if (number == links_) Take(message);
            },
            hello);
      },
      [this, number, hello](absl::Status status) {
        if (number != links_) return;
        link_.reset();
        const bool another = cell_.Ended(status, welcome_.welcomed());
        if (another && !welcome_.welcomed()) return OpenLinkWith(hello);
        Dispatch(LinkBroken{std::move(status)});
      });
}

void RouterProcess::Execute(CloseLink&) {
  ++links_;
  if (link_ != nullptr) link_->Close(Duplex::kClient, absl::CancelledError("closed"));
  link_.reset();
  cell_.WasSilent();
}

void RouterProcess::ToOrchestrator(OrchestratorEvent message) {
  if (link_ == nullptr) return;
  link_->Send(Duplex::kClient, [stream = link_, message = std::move(message), network = network_,
                                asked = cell_.asked()] {
    // Found when it arrives: it may have been dead when the message was sent.
    Process* orchestrator = network->Find(asked);
    if (orchestrator == nullptr) return;
    static_cast<OrchestratorProcess*>(orchestrator)->Take(stream, message);
  });
}

void RouterProcess::Execute(SendSubmit& effect) {
  ToOrchestrator(network_->Encoded(SubmitCalled{effect.spec, effect.shape, effect.accepted,
                                                effect.failed_engines, effect.moves}));
}

void RouterProcess::Execute(SendRouterEnd& effect) {
  ToOrchestrator(RouterEnded{network_->Encoded(effect.end)});
}

void RouterProcess::Execute(SendRouterReport& effect) {
  effect.load.draining = draining_;
  HeardInstances::Told heard = tokens_->heard().TellChanges(0);
  effect.load.heard = std::move(heard.heard);
  effect.load.not_heard = std::move(heard.not_heard);
  ToOrchestrator(RouterReported{{}, network_->Encoded(effect.load)});
}

void RouterProcess::Take(const RouterMessage& message) {
  const auto* welcome = std::get_if<RouterWelcome>(&message);
  std::optional<uint64_t> generation;
  if (welcome != nullptr) generation = welcome->generation.number;
  network_->NoteMalformed(welcome_.Take(generation, link_->client_session()));
  if (welcome != nullptr) {
    if (welcome->status.ok()) tokens_->heard().SetLease(0, welcome->lease_us);
    Dispatch(Welcomed{*welcome});
  } else if (const auto* sent = std::get_if<SendPlanUpdate>(&message)) {
    Dispatch(PlanUpdateReceived{sent->id, sent->update});
  } else if (const auto* order = std::get_if<OrderRouterDrain>(&message)) {
    TakeDrain(order->drain);
  } else {
    Dispatch(RouterReportTaken{std::get<AnswerRouterReport>(message).cell});
  }
}

void RouterProcess::TakeDrain(bool drain) {
  if (drain) ++drains_taken_;
  draining_ = drain;
  Dispatch(ReportSoon{});
}

void RouterProcess::Execute(OpenTokens& effect) {
  Client& client = ClientOf(effect.id.First());  // of any attempt
  client.decode = effect.endpoint;
  client.attempt = effect.id;
  tokens_->Attach(effect.id, effect.epoch,
                  {effect.endpoint, {effect.cell, effect.decode}, effect.ahead}, "", client.paused,
                  LocalNow());
}

void RouterProcess::LeaveUnread(TimeUs until) {
  unread_until_us_ = std::max(unread_until_us_, until);
  VirtualTime& time = network_->time();
  time.At(until, [this] { ReadAll(); });
}

void RouterProcess::ReadAll() {
  if (network_->time().now() < unread_until_us_) return;
  for (auto& [serial, client] : clients_) {
    client.unread = 0;
    if (!std::exchange(client.paused, false) || client.ends > 0) continue;
    tokens_->SetPaused(client.attempt, false);
  }
  if (alive()) Executed();
}

// What is under way when a client's connection is full still comes; more than that may not.
void RouterProcess::NoteUnread(Client& client) {
  if (client.plan.spec->id.serial / 2 % 2 == 0 || network_->time().now() >= unread_until_us_)
    return;
  ++client.unread;
  if (client.unread > kUnreadMax + kCredit) {
    Violated(client, "tokens pile up for a client that does not read");
  }
  if (client.unread < kUnreadMax || std::exchange(client.paused, true)) return;
  ++paused_;
  tokens_->SetPaused(client.attempt, true);
}

void RouterProcess::Execute(CloseTokens& effect) { tokens_->Detach(effect.id, effect.epoch); }

void RouterProcess::Executed() {
  for (const TokenStreamClient::Open& open : tokens_->TakeOpens()) OpenTokenStream(open);
  for (const TokenStreamId id : tokens_->TakeReady()) {
    if (!tokens_->HasNext(id)) continue;
    Stream* const stream = token_links_.at(id).get();
    stream->SendToServer([stream, request = network_->Encoded(tokens_->Next(id))] {
      static_cast<DecodeProcess*>(stream->server())->TokenRequest(stream, request);
    });
  }
  const absl::Status invariants = tokens_->CheckInvariants();
  if (!invariants.ok()) verdict_->Violated(std::string(invariants.message()));
  ArmTokens();
}

void RouterProcess::ArmTokens() {
  const TimeUs due = tokens_->NextDeadline();
  if (due >= tokens_due_us_) return;
  tokens_due_us_ = due;
  After(std::max<TimeUs>(due - LocalNow(), 1), [this, due] {
    if (tokens_due_us_ != due) return;
    tokens_due_us_ = kNever;
    for (const TokenStreamClient::Lost& request : tokens_->Tick(LocalNow())) {
      Dispatch(TokenStreamLost{request.id, request.epoch,
                               absl::UnavailableError("the decode worker did not answer"),
                               request.unreached});
    }
    Executed();
  });
}

void RouterProcess::OpenTokenStream(const TokenStreamClient::Open& open) {
  const TokenStreamId id = open.stream;
  token_links_[id] = network_->Open(
      this, open.endpoint,
      [this, id](Process* callee, std::shared_ptr<Stream> stream) {
        static_cast<DecodeProcess*>(callee)->OpenTokenStream(
            std::move(stream), [this, id](const TokenBatch& batch) { OnTokenBatch(id, batch); });
      },
      [this, id](const absl::Status& status) { OnTokenStreamEnded(id, status); });
}

void RouterProcess::OnTokenBatch(TokenStreamId stream, const TokenBatch& batch) {
  tokens_->Received(stream, LocalNow());
  for (const SequenceTokens& tokens : batch.sequences) {
    const TokenStreamClient::Part part = tokens_->Receive(stream, tokens);
    if (!part.attached) continue;
    for (size_t i = 0; i < tokens.tokens.size(); ++i) {
      Dispatch(TokenReceived{tokens.id, tokens.epoch, tokens.first_index + static_cast<int64_t>(i),
                             tokens.tokens[i],
                             tokens.payloads.empty() ? std::string() : tokens.payloads[i],
                             i == 0 ? tokens.prompt_logprobs : std::string(), tokens.times,
                             /*again=*/static_cast<int64_t>(i) < part.repeated});
    }
    if (!tokens.finished.has_value()) {
      if (tokens.leaving) Dispatch(StreamLeaving{tokens.id, tokens.epoch});
      continue;
    }
    const FinishedTokens& finished = *tokens.finished;
    Dispatch(FinishedReceived{tokens.id, tokens.epoch, finished.reason, finished.status,
                              finished.output_tokens, finished.stop_token,
                              tokens.tokens.empty() ? tokens.prompt_logprobs : std::string(),
                              tokens.times, finished.engine_failed});
  }
  Executed();
}

void RouterProcess::OnTokenStreamEnded(TokenStreamId stream, const absl::Status& status) {
  token_links_.erase(stream);
  const absl::Status lost =
      absl::UnavailableError(status.ok() ? "the token stream ended early" : status.message());
  for (const TokenStreamClient::Lost& request : tokens_->Ended(stream, LocalNow())) {
    Dispatch(TokenStreamLost{request.id, request.epoch, lost});
  }
  Executed();
}

void RouterProcess::Execute(DeliverToken& effect) {
  Client& client = ClientOf(effect.id);
  if (client.ends > 0) Violated(client, "a token after the end");
  if (effect.index != static_cast<int64_t>(client.tokens.size())) {
    Violated(client, absl::StrCat("token index ", effect.index));
  }
  client.tokens.push_back(effect.token);
  client.last_token_us = network_->time().now();
  NoteWait(client);
  NoteUnread(client);
  client.prompt_logprobs += effect.prompt_logprobs;
  const size_t place = client.tokens.size() - 1;
  if (place >= client.expected.tokens.size() || client.expected.tokens[place] != effect.token) {
    Violated(client, absl::StrCat("wrong token ", effect.token, " at ", effect.index));
  }
  if (place >= client.expected.payloads.size() ||
      client.expected.payloads[place] != effect.payload) {
    Violated(client, absl::StrCat("wrong logprobs at ", effect.index));
  }
  if (effect.index == client.plan.stops_after) {
    After(0, [this, id = effect.id] { Dispatch(StopMatched{id}); });
  }
}

void RouterProcess::Execute(End& effect) {
  Client& client = ClientOf(effect.id);
  Ended(client, effect.status);
  if (effect.status.ok()) CheckAnswer(client, effect);
}

void RouterProcess::CheckAnswer(const Client& client, const End& end) {
  ++finished_;
  finished_in_groups_ += client.plan.needs_group ? 1 : 0;
  const RequestSpec& spec = *client.plan.spec;
  const auto tokens = static_cast<int64_t>(client.tokens.size());
  const bool cut = client.plan.stops_after >= 0 && tokens > client.plan.stops_after;
  if (!cut && client.tokens != client.expected.tokens) Violated(client, "half an answer");
  if (!cut && end.stop_token != client.expected.stop_token) Violated(client, "wrong stop token");
  if (end.output_tokens != tokens + (end.stop_token >= 0 ? 1 : 0)) Violated(client, "wrong count");
  const bool said = spec.want_prompt_logprobs &&
                    (spec.max_tokens == 0 || !client.tokens.empty() || end.stop_token < 0);
  if (said && client.prompt_logprobs + end.prompt_logprobs != client.expected.prompt_logprobs) {
    Violated(client, "wrong logprobs of the prompt");
  }
}

}  // namespace skein::sim
