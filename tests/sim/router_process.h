// The router of the simulation with its clients: compares every answer with the one computed from
// the prompt alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/router/router_core.h"
#include "scheduler/router/token_stream_client.h"
#include "services/orchestrator_link/welcome_check.h"
#include "tests/sim/answers.h"
#include "tests/sim/cell_link.h"
#include "tests/sim/core_process.h"
#include "tests/sim/orchestrator_process.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

class RouterProcess
    : public CoreProcess<RouterProcess, scheduler::RouterCore, scheduler::RouterEvent,
                         scheduler::RouterEffect, scheduler::RouterTick> {
 public:
  static const CoreStates& States() {
    static const CoreStates states{"router", {"queued", "submitted", "placed", "resuming"}};
    return states;
  }

  using CoreProcess::CoreProcess;

  // Whether the decode worker at the endpoint has lost what it ran: of a world with a PointedFault.
  using Struck = std::function<bool(const std::string& endpoint)>;
  void ExcuseBy(Struck struck) { struck_ = std::move(struck); }

  // Of several: the second one has the number 1. REQUIRES: it has not started.
  void Number(int number) { number_ = static_cast<uint64_t>(number); }
  // Where requests are noted whose clients went away, and those that were open when it died
  // (OrchestratorProcess::Watch).
  void NoteIn(Departures* departures, Departures* abandoned) {
    departures_ = departures;
    abandoned_ = abandoned;
  }

  void Arrive(const ClientPlan& plan);
  // Until then, half of the clients do not read their answers.
  void LeaveUnread(TimeUs until);
  int64_t paused() const { return paused_; }  // how often tokens of a client were held back
  bool AllEnded() const;
  // What became of the request of this serial, once it ended.
  absl::Status StatusOf(uint64_t serial) const { return clients_.at(serial).status; }
  int64_t finished() const { return finished_; }
  int64_t finished_in_groups() const { return finished_in_groups_; }  // that fit no instance alone
  // Requests that ended with the error of their own sequence.
  int64_t failed_alone() const { return failed_alone_; }
  // Clients that have not got their answer.
  int64_t open() const { return open_; }
  uint64_t incarnation() const { return incarnation_; }
  bool draining() const { return draining_; }             // an operator has ordered it
  int64_t drains_taken() const { return drains_taken_; }  // such orders, undone ones included
  // Of each client, by serial: the longest time that it waited for its next token or the end.
  std::map<uint64_t, TimeUs> LongestWaits() const;
  int64_t abandoned() const { return abandoned_clients_; }  // it died, or was dead
  // Of this incarnation: attempts given up because their instance drains.
  int64_t moves() const { return alive() ? static_cast<int64_t>(core()->Snapshot().moves) : 0; }

  void Execute(scheduler::Reject& effect);
  void Execute(scheduler::SendSubmit& effect);
  void Execute(scheduler::RequestAccepted& effect) { ClientOf(effect.id).accepted = true; }
  void Execute(scheduler::SendRouterEnd& effect);
  void Execute(scheduler::OpenLink& effect);
  void Execute(scheduler::CloseLink& effect);
  void Execute(scheduler::SendRouterReport& effect);
  void Execute(scheduler::SendRouterGoodbye&) {}  // it stays, drained or not
  void Execute(scheduler::RouterHasLeft&) {}
  void Execute(scheduler::OpenTokens& effect);
  void Execute(scheduler::CloseTokens& effect);
  void Execute(scheduler::DeliverToken& effect);
  void Execute(scheduler::End& effect);
  void Executed();  // the token streams' part

 protected:
  void OnStart() override;
  void OnCrash() override;

 private:
  struct Client {
    ClientPlan plan;
    Expected expected;
    std::vector<int32_t> tokens;
    scheduler::TimeUs last_token_us = 0;
    scheduler::TimeUs waits_since_us = 0;  // for its next token, or the end
    scheduler::TimeUs longest_wait_us = 0;
    std::string prompt_logprobs;
    std::string decode;            // the endpoint where it was attached last
    scheduler::RequestId attempt;  // that was attached last
    int64_t unread = 0;            // tokens that it was sent, and did not read
    bool paused = false;           // it has room for no more of them
    bool accepted = false;         // the orchestrator has planned it, or said that it will
    int ends = 0;
    absl::Status status;
  };

  void ArmTokens();
  void OpenTokenStream(const scheduler::TokenStreamClient::Open& open);
  void OnTokenBatch(scheduler::TokenStreamId stream, const scheduler::TokenBatch& batch);
  void OnTokenStreamEnded(scheduler::TokenStreamId stream, const absl::Status& status);
  Client& ClientOf(scheduler::RequestId id) { return clients_.at(id.serial); }
  void OpenLinkWith(const scheduler::RouterHello& hello);
  void ToOrchestrator(scheduler::OrchestratorEvent message);
  void Take(const RouterMessage& message);
  void TakeDrain(bool drain);
  void NoteUnread(Client& client);
  void ReadAll();
  void Ended(Client& client, absl::Status status);
  void NoteWait(Client& client);  // it ends, with a token or the end
  void CheckAnswer(const Client& client, const scheduler::End& end);
  void CheckHonest(const Client& client, const absl::Status& status);
  void CheckPoison(const Client& client);
  void Violated(const Client& client, const std::string& what);

  // Little credit, so that streams wait for more.
  static constexpr int64_t kCredit = 4;
  static constexpr int64_t kUnreadMax = 3;  // tokens that the connection to a client holds

  std::unique_ptr<scheduler::TokenStreamClient> tokens_;
  TimeUs tokens_due_us_ = scheduler::kNever;  // their next tick
  std::map<scheduler::TokenStreamId, std::shared_ptr<Stream>> token_links_;
  uint64_t incarnation_ = kRouter;  // another one at each start
  CellLink cell_;
  std::shared_ptr<Duplex> link_;        // to the orchestrator; null: there is none
  uint64_t links_ = 0;                  // messages of an older one are not heard any more
  services::WelcomeCheck welcome_;      // of link_
  std::map<uint64_t, Client> clients_;  // by serial
  uint64_t number_ = 0;
  Departures* departures_ = nullptr;
  Departures* abandoned_ = nullptr;
  int64_t abandoned_clients_ = 0;
  Struck struck_;
  bool draining_ = false;
  int64_t drains_taken_ = 0;
  TimeUs unread_until_us_ = 0;
  int64_t paused_ = 0;
  int64_t turned_away_ = 0;  // clients that come again
  int64_t open_ = 0;
  int64_t finished_ = 0;
  int64_t finished_in_groups_ = 0;
  int64_t failed_alone_ = 0;
};

}  // namespace skein::sim
