// The handoff side of PrefillShell: its sender, and the calls to decode instances.
#include <algorithm>
#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

#include "proto/decode_worker.grpc.pb.h"
#include "services/codec/answer.h"
#include "services/codec/codec.h"
#include "services/log/log.h"
#include "services/permits/permit_gate.h"
#include "services/worker/prefill/prefill_shell.h"

namespace skein::services {
namespace {

using DecodeWorkerMethods = v1::DecodeWorker::StubInterface::async_interface;

constexpr auto kPumpWait = std::chrono::milliseconds(100);
// While a device writes a layer's KV: far less than a layer of a prompt takes.
constexpr auto kLookAgain = std::chrono::microseconds(200);
// Without anything to put for so long, a staging buffer is given back: longer than a layer takes.
constexpr auto kIdleAfter = std::chrono::milliseconds(200);

constexpr int64_t kLogEveryUs = 1'000'000;

std::chrono::steady_clock::time_point TimePoint(scheduler::TimeUs us) {
  return std::chrono::steady_clock::time_point(std::chrono::microseconds(us));
}

}  // namespace

engine::HandoffEnds PrefillShell::Ends() {
  return {.done =
              [this](engine::HandoffKey key, std::vector<int64_t> bytes) {
                Post(scheduler::HandoffDone{key.id, key.epoch, std::move(bytes),
                                            std::exchange(carried_, {})},
                     Loop::kHelpOnce);
              },
          .failed =
              [this](engine::HandoffKey key, absl::Status status) {
                LogWarning("handoff failed", {{"request_id", ToString(key.id)},
                                              {"reason", std::string(status.message())}});
                Post(scheduler::HandoffFailed{key.id, key.epoch, std::move(status)});
              },
          .stopped =
              [this](engine::HandoffKey key) {
                Post(scheduler::HandoffStopped{key.id, key.epoch});
              },
          .part =
              [this](engine::HandoffKey key, std::vector<StagedBlock> part) {
                Post(scheduler::HandoffPart{key.id, key.epoch, std::move(part)});
              },
          .waits =
              [this](engine::HandoffKey key) {
                Post(scheduler::HandoffWaits{key.id, key.epoch});
              },
          .idle =
              [this](engine::HandoffKey key) {
                Post(scheduler::HandoffIdle{key.id, key.epoch});
              },
          .carried =
              [this](engine::HandoffKey, const engine::PeerInfo& by) {
                carried_ = {.path = by.path, .transport = by.transport};
              }};
}

// What has ended has no handoff under way; one that was never granted is forgotten here.
void PrefillShell::ForgetHandoffsOf(const std::vector<scheduler::EndedRequest>& all) {
  for (const scheduler::EndedRequest& ended : all) {
    const engine::HandoffKey key = {ended.id, ended.epoch};
    if (opened_.erase(key) == 1) sender_.Discard(key);
  }
}

void PrefillShell::Pump() {
  // The engine wakes the pump when a device has more to write; what it has written nobody tells.
  const bool writes = runner_->TellLayers();
  sender_.Pump(writes ? kLookAgain : kPumpWait);
  if (const int64_t now = MonotonicUs(); now >= next_log_us_) {
    next_log_us_ = now + kLogEveryUs;
    sender_.DropGonePeers();
    LogTransports();
    comm_log_.Log(CommTotals());
  }
}

// A transport that is slower than it should be must be seen, not guessed: say what carries the
// bytes and how fast.
void PrefillShell::LogTransports() {
  std::map<engine::PeerId, uint64_t> logged;  // without peers that are gone
  for (const engine::HandoffTotals& total : sender_.Totals()) {
    if (total.id == engine::PeerId{} || total.bytes == 0) continue;
    const auto found = logged_.find(total.id);
    const uint64_t before = found == logged_.end() ? 0 : found->second;
    // Once at the first handoff to a peer, then each time the bytes have grown eightfold.
    const bool due = total.bytes >= 8 * before;
    logged[total.id] = due ? total.bytes : before;
    if (!due) continue;
    const double seconds = total.busy_seconds;
    LogInfo("handoff transport",
            {{"endpoint", total.peer},
             {"transport", total.transport},
             {"path", total.path},
             {"bytes", total.bytes},
             {"gb_per_s", seconds > 0 ? static_cast<double>(total.bytes) / seconds * 1e-9 : 0}});
  }
  logged_ = std::move(logged);
}

// A call to a decode instance. It shows the permit of its transfer, if there is one.
template <typename Request, typename Response, typename Core>
void PrefillShell::CallDecode(UnaryMethod<v1::DecodeWorker, Request, Response> method,
                              const scheduler::DecodeCall<Core>& effect,
                              std::type_identity_t<Done<Response>> done) {
  Request request = ToProto(effect.request);
  constexpr bool kOpens = std::is_same_v<Request, v1::OpenTransferRequest>;
  if constexpr (kOpens) request.set_permit(effect.permit);
  std::shared_ptr<v1::DecodeWorker::Stub> stub =
      v1::DecodeWorker::NewStub(channels_.Get(effect.endpoint, {tls::Role::kDecodeWorker}));
  CallUnary<Response>(
      "decode-worker", &calls_, std::move(request), effect.timeout_us,
      [stub, method, permit = kOpens ? std::string() : effect.permit](auto* context, auto* asked,
                                                                      auto* response, auto end) {
        if (!permit.empty()) context->AddMetadata(kPermitMetadata, permit);
        (stub->async()->*method)(context, asked, response, std::move(end));
      },
      std::move(done));
}

void PrefillShell::On(const scheduler::CallOpenTransfer& effect) {
  CallDecode(&DecodeWorkerMethods::OpenTransfer, effect,
             [this, id = effect.request.id, epoch = effect.request.epoch](
                 absl::Status status, const v1::OpenTransferResponse& response) {
               Post(
                   scheduler::OpenTransferReplied{
                       id, epoch, AnswerOf("decode-worker", std::move(status), response)},
                   Loop::kHelp);
             });
}

void PrefillShell::On(const scheduler::CallRenew& effect) {
  CallDecode(&DecodeWorkerMethods::Renew, effect,
             [this, id = effect.request.id, epoch = effect.request.epoch](
                 absl::Status status, const v1::RenewResponse& response) {
               Post(scheduler::RenewReplied{
                   id, epoch, AnswerOf("decode-worker", std::move(status), response)});
             });
}

void PrefillShell::On(const scheduler::CallAcquireStagingBuffer& effect) {
  CallDecode(&DecodeWorkerMethods::AcquireStagingBuffer, effect,
             [this, asked = effect.request](absl::Status status,
                                            const v1::AcquireStagingBufferResponse& response) {
               Post(scheduler::AcquireStagingBufferReplied{
                   asked.id, asked.epoch, asked.ask, {std::move(status), response.memory()}});
             });
}

void PrefillShell::On(const scheduler::CallTakePart& effect) {
  CallDecode(&DecodeWorkerMethods::TakePart, effect,
             [this, id = effect.request.id, epoch = effect.request.epoch,
              part = effect.request.part](absl::Status status, const v1::TakePartResponse&) {
               Post(scheduler::TakePartReplied{id, epoch, part, {std::move(status)}});
             });
}

void PrefillShell::On(const scheduler::CallReleaseStagingBuffer& effect) {
  CallDecode(
      &DecodeWorkerMethods::ReleaseStagingBuffer, effect,
      [this, asked = effect.request](absl::Status status, const v1::ReleaseStagingBufferResponse&) {
        Post(scheduler::ReleaseStagingBufferReplied{
            asked.id, asked.epoch, asked.ask, {std::move(status)}});
      });
}

void PrefillShell::On(const scheduler::CallCommit& effect) {
  CallDecode(&DecodeWorkerMethods::Commit, effect,
             [this, id = effect.request.id, epoch = effect.request.epoch](
                 absl::Status status, const v1::CommitResponse&) {
               Post(scheduler::CommitReplied{id, epoch, {std::move(status)}});
             });
}

void PrefillShell::On(const scheduler::CallAbort& effect) {
  CallDecode(&DecodeWorkerMethods::Abort, effect,
             [](const absl::Status&, const v1::AbortResponse&) {});
}

void PrefillShell::On(const scheduler::OpenHandoff& effect) {
  const engine::HandoffKey key = {effect.id, effect.epoch};
  opened_.insert(key);
  sender_.Open(key, effect.blocks, scheduler::PromptTokens(*effect.spec), effect.more);
}

void PrefillShell::On(const scheduler::AddToHandoff& effect) {
  sender_.Add({effect.id, effect.epoch}, effect.blocks, effect.more);
}

void PrefillShell::LayerWritten(const scheduler::RunStep& step, int layer) {
  for (const scheduler::StepSequence& sequence : step.sequences) {
    const int64_t end =
        sequence.ring != nullptr ? sequence.ring->token_end : sequence.position + sequence.count;
    sender_.Written({sequence.id, sequence.epoch}, layer, end);
  }
}

void PrefillShell::On(const scheduler::StartHandoff& effect) {
  engine::HandoffGrant grant;
  grant.post_until = TimePoint(effect.post_until_us);
  grant.staging_slots = effect.staging_slots;
  grant.idle_after = kIdleAfter;
  grant.peer = effect.endpoint;
  if (effect.staging_slots == 0) {
    grant.targets.push_back({.blocks = effect.remote_blocks, .memory = effect.memory});
    for (const scheduler::TransferTarget& other : effect.others) {
      grant.targets.push_back({.blocks = other.blocks, .memory = other.memory});
    }
  }
  sender_.Grant({effect.id, effect.epoch}, std::move(grant));
}

void PrefillShell::On(const scheduler::UseStagingBuffer& effect) {
  sender_.UseBuffer({effect.id, effect.epoch}, effect.memory);
}

void PrefillShell::On(const scheduler::PartTaken& effect) {
  std::vector<int32_t> slots;
  for (const StagedBlock& block : effect.blocks) slots.push_back(block.slot);
  sender_.Taken({effect.id, effect.epoch}, slots, absl::OkStatus());
}

void PrefillShell::On(const scheduler::ExtendHandoff& effect) {
  sender_.Extend({effect.id, effect.epoch}, TimePoint(effect.post_until_us));
}

void PrefillShell::On(const scheduler::StopHandoff& effect) {
  sender_.Stop({effect.id, effect.epoch});
}

}  // namespace skein::services
