// An orchestrator over gRPC that registers workers, and orders and awaits what a test says: groups,
// formations, requests. It plans nothing: whoever asks it for a place is told to drop the request.
// For tests of what workers do when they are bound.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/messages.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/rpc.h"

namespace skein::services::testing {

// Worker i is the one whose process has incarnation i + 1. Thread-safe.
class FormationOrchestrator final : public v1::Orchestrator::CallbackService {
 public:
  // The lease is the workers'; they report several times in it.
  explicit FormationOrchestrator(scheduler::TimeUs lease_us = 60 * scheduler::kSecondUs)
      : lease_us_(lease_us) {
    auto server = ServeRpc("127.0.0.1:0", {this});
    SKEIN_CHECK_MSG(server.ok(), server.status().ToString().c_str());
    server_ = *std::move(server);
  }
  ~FormationOrchestrator() override {
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", server_.port); }

  // To the decode-workers 0 … count - 1, once all have registered: make the communicators.
  void OrderGroups(uint64_t generation, size_t count) {
    std::vector<uint64_t> workers(count);
    for (size_t i = 0; i < count; ++i) workers[i] = i;
    OrderGroups(generation, workers);
  }
  // To these, in the order of the group.
  void OrderGroups(uint64_t generation, const std::vector<uint64_t>& workers) {
    for (const uint64_t worker : workers) AwaitRegistered(worker);
    const std::lock_guard lock(mutex_);
    scheduler::GroupOrder order{.generation = generation, .index = 0, .members = {}};
    for (const uint64_t worker : workers) {
      order.members.push_back({{worker + 1}, workers_.at(worker).comm_address});
    }
    for (const uint64_t worker : workers) {
      v1::OrchestratorMessage message;
      *message.mutable_group() = ToProto(order);
      workers_.at(worker).groups = message;
      Send(&workers_.at(worker), std::move(message));
      ++order.index;
    }
  }
  // The generation of communicators that the worker has reported last.
  uint64_t GroupsMade(uint64_t worker) {
    const std::lock_guard lock(mutex_);
    return workers_[worker].groups_made;
  }
  // Where it is reached. Within a minute, else the process ends.
  std::string AwaitRegistered(uint64_t worker) {
    std::unique_lock lock(mutex_);
    SKEIN_CHECK_MSG(AwaitLocked(&lock, [&] { return workers_.contains(worker); }),
                    "a worker has not registered");
    return workers_.at(worker).endpoint;
  }
  void Tell(uint64_t worker, const scheduler::PrepareFormation& order) {
    v1::OrchestratorMessage message;
    *message.mutable_prepare_formation() = ToProto(order);
    TellOfFormation(worker, order.epoch, std::move(message));
  }
  void Tell(uint64_t worker, const scheduler::CommitFormation& order) {
    v1::OrchestratorMessage message;
    *message.mutable_commit_formation() = ToProto(order);
    TellOfFormation(worker, order.epoch, std::move(message));
  }
  void Tell(uint64_t worker, const scheduler::EndFormation& order) {
    v1::OrchestratorMessage message;
    *message.mutable_end_formation() = ToProto(order);
    TellOfFormation(worker, order.epoch, std::move(message));
  }

  void Tell(uint64_t worker, const scheduler::OrderMode& order) {
    v1::OrchestratorMessage message;
    *message.mutable_mode_order() = ToProto(order);
    SendTo(worker, std::move(message));
  }

  void Tell(uint64_t worker, v1::OrchestratorMessage message) {
    SendTo(worker, std::move(message));
  }

  // The latest that the worker has told.
  scheduler::FormationTold Told(uint64_t worker) {
    const std::lock_guard lock(mutex_);
    return workers_[worker].told;
  }
  // Requests whose place a prefill-worker asked for since the last call: it drops them. And those
  // that were announced to a decode-worker on a former stream and that it does not hold on its new
  // one: they have ended there, or their announcement was lost.
  std::vector<std::pair<scheduler::RequestId, scheduler::Epoch>> TakeDropped() {
    const std::lock_guard lock(mutex_);
    return std::exchange(dropped_, {});
  }

  // What the worker tells of the epoch when it is that far, or has ended it instead. Within a
  // minute, else the process ends.
  scheduler::FormationTold Await(uint64_t worker, uint64_t epoch,
                                 scheduler::FormationTold::Phase phase) {
    std::unique_lock lock(mutex_);
    const scheduler::FormationTold& told = workers_[worker].told;
    SKEIN_CHECK_MSG(AwaitLocked(&lock,
                                [&] {
                                  return told.epoch == epoch &&
                                         (told.phase == phase ||
                                          told.phase == scheduler::FormationTold::Phase::kEnded);
                                }),
                    "a worker does not tell of a formation");
    return told;
  }

  // What the worker tells of this change of its mode when it is that far, or has refused it.
  scheduler::ModeTold AwaitMode(uint64_t worker, uint64_t epoch, uint64_t turn,
                                scheduler::ModeTold::Phase phase) {
    std::unique_lock lock(mutex_);
    const scheduler::ModeTold& told = workers_[worker].mode;
    SKEIN_CHECK_MSG(AwaitLocked(&lock,
                                [&] {
                                  return told.epoch == epoch && told.turn == turn &&
                                         (told.phase == phase ||
                                          told.phase == scheduler::ModeTold::Phase::kRefused);
                                }),
                    "a worker does not tell of a mode");
    return told;
  }

  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    auto stream = Stream::Make(context, [](const std::function<void()>& hook) { hook(); });
    auto connection = std::make_shared<Connection>();
    connection->stream = stream;
    stream->Open({.message = [this, connection](const auto& one) { Take(connection, one); },
                  .ended = [] {}});
    return stream.get();
  }

 private:
  using Stream = ServerStream<v1::WorkerMessages, v1::OrchestratorMessages>;

  using Attempt = std::pair<scheduler::RequestId, scheduler::Epoch>;

  struct Connection {
    std::shared_ptr<Stream> stream;
    MessageCounters counters{scheduler::FirstNumberOf(1)};
    uint64_t worker = 0;
  };
  struct Worker {
    std::shared_ptr<Connection> connection;
    std::string endpoint, comm_address;
    uint64_t groups_made = 0;                       // a generation
    std::optional<v1::OrchestratorMessage> groups;  // the latest order
    scheduler::FormationTold told;
    scheduler::ModeTold mode;
    uint64_t ordered_epoch = 0;                   // of the formation of these
    std::vector<v1::OrchestratorMessage> orders;  // prepare, commit, end, as far as they were given
    std::set<Attempt> announced;                  // what ended later is named, too
  };

  void Take(const std::shared_ptr<Connection>& connection, const v1::WorkerMessage& message) {
    const std::lock_guard lock(mutex_);
    const absl::Status taken = connection->counters.Take(message, 0);
    SKEIN_CHECK_MSG(taken.ok(), taken.ToString().c_str());
    if (message.has_hello()) {
      connection->worker = message.hello().incarnation() - 1;
      Worker& worker = workers_[connection->worker];
      worker.connection = connection;
      worker.endpoint = message.hello().endpoint();
      worker.comm_address = message.hello().comm_address();
      DropWhatIsNotHeld(&worker, message.hello());
      if (message.hello().has_formation()) TakeTold(&worker, message.hello().formation());
      Welcome(&worker);
      // What was sent on its former stream may be lost.
      if (worker.groups.has_value()) Send(&worker, *worker.groups);
      SendOrdersAgain(&worker);
    } else if (message.has_report()) {
      Worker& worker = workers_[connection->worker];
      worker.groups_made = message.report().load().groups_made();
      v1::OrchestratorMessage answer;
      answer.mutable_report_taken();
      Send(&worker, std::move(answer));
    } else if (message.has_formation()) {
      TakeTold(&workers_[connection->worker], message.formation());
    } else if (message.has_mode()) {
      const auto told = FromProto(message.mode());
      SKEIN_CHECK_MSG(told.ok(), told.status().ToString().c_str());
      workers_[connection->worker].mode = *told;
    } else if (message.has_place_decode()) {
      Drop(&workers_[connection->worker], message.place_decode());
    }
    changed_.notify_all();
  }
  static Attempt Announced(const v1::AnnounceRequest& announce) {
    v1::RequestSpec spec;
    SKEIN_CHECK(spec.ParseFromString(announce.spec()));
    return {*FromProto(spec.id()), scheduler::Epoch{announce.epoch()}};
  }
  void DropWhatIsNotHeld(Worker* worker, const v1::RegisterRequest& hello) {
    std::set<Attempt> held;
    for (const v1::HeldRequest& one : hello.held()) {
      held.emplace(*FromProto(one.id()), scheduler::Epoch{one.epoch()});
    }
    for (const Attempt& one : std::exchange(worker->announced, held)) {
      if (!held.contains(one)) dropped_.push_back(one);
    }
  }
  void TellOfFormation(uint64_t worker, uint64_t epoch, v1::OrchestratorMessage message) {
    const std::lock_guard lock(mutex_);
    Worker& to = workers_.at(worker);
    if (std::exchange(to.ordered_epoch, epoch) != epoch) to.orders.clear();
    to.orders.push_back(message);
    Send(&to, std::move(message));
  }
  // Those that the worker does not tell to have carried out.
  static void SendOrdersAgain(Worker* worker) {
    using Phase = scheduler::FormationTold::Phase;
    if (worker->told.epoch > worker->ordered_epoch) return;
    const bool begun = worker->told.epoch == worker->ordered_epoch;
    if (begun && worker->told.phase == Phase::kEnded) return;
    for (const v1::OrchestratorMessage& order : worker->orders) {
      if (begun && order.has_prepare_formation()) continue;
      if (begun && order.has_commit_formation() && worker->told.phase == Phase::kBound) continue;
      Send(worker, order);
    }
  }
  static void TakeTold(Worker* worker, const v1::FormationTold& message) {
    const auto told = FromProto(message);
    SKEIN_CHECK_MSG(told.ok(), told.status().ToString().c_str());
    worker->told = *told;
  }
  void Welcome(Worker* worker) {
    v1::OrchestratorMessage message;
    message.mutable_welcome()->set_instance(worker->connection->worker + 1);
    message.mutable_welcome()->set_lease_us(static_cast<uint64_t>(lease_us_));
    message.mutable_welcome()->mutable_generation()->set_number(1);
    message.mutable_welcome()->mutable_generation()->set_orchestrator(1);
    Send(worker, std::move(message));
  }
  void Drop(Worker* prefill, const v1::PlaceDecodeRequest& asks) {
    const auto id = FromProto(asks.id());
    SKEIN_CHECK_MSG(id.ok(), id.status().ToString().c_str());
    dropped_.emplace_back(*id, scheduler::Epoch{asks.epoch()});
    v1::OrchestratorMessage message;
    auto* answer = message.mutable_decode_placed();
    *answer->mutable_id() = asks.id();
    answer->set_epoch(asks.epoch());
    answer->mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
    answer->mutable_failure()->set_message("the request is placed anew");
    Send(prefill, std::move(message));
  }
  void SendTo(uint64_t worker, v1::OrchestratorMessage message) {
    const std::lock_guard lock(mutex_);
    Worker& to = workers_.at(worker);
    if (message.has_announce()) to.announced.insert(Announced(message.announce()));
    Send(&to, std::move(message));
  }
  static void Send(Worker* worker, v1::OrchestratorMessage message) {
    worker->connection->counters.Stamp(&message, 0);
    worker->connection->stream->Write(std::move(message));
  }
  template <class Condition>
  bool AwaitLocked(std::unique_lock<std::mutex>* lock, const Condition& condition) {
    return changed_.wait_for(*lock, std::chrono::minutes(1), condition);
  }

  const scheduler::TimeUs lease_us_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Worker> workers_;
  std::vector<Attempt> dropped_;
  RpcServer server_;
};

}  // namespace skein::services::testing
