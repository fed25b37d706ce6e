#include "bench/comm/handshake_writer.h"

#include <cstring>
#include <thread>
#include <utility>

#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/worker/engine/worker_engine.h"

namespace skein::bench {
namespace {

constexpr int64_t kDeadlineUs = 60'000'000;
constexpr auto kPutTimeout = std::chrono::seconds(60);

void Check(const absl::Status& status) { SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str()); }

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace

HandshakeWriter::HandshakeWriter(const HandshakeShape& shape,
                                 std::shared_ptr<grpc::Channel> channel, int index)
    : shape_(shape),
      index_(index),
      decode_(v1::DecodeWorker::NewStub(channel)),
      staging_(Staging::NewStub(channel)) {
  auto transport = engine::MakeUcxTransport({});
  Check(transport.status());
  transport_ = *std::move(transport);
  std::vector<engine::RegionId> regions;
  for (int layer = 0; layer < shape.kv.num_layers; ++layer) {
    const auto region =
        transport_->Register(nullptr, static_cast<size_t>(shape.kv.num_blocks) *
                                          static_cast<size_t>(shape.kv.BlockBytes()));
    Check(region.status());
    std::memset(region->base, 2, region->bytes);
    regions.push_back(region->id);
  }
  sender_ = std::make_unique<engine::HandoffSender>(
      transport_.get(), shape.kv, std::move(regions), kPutTimeout,
      engine::HandoffEnds{
          .done = [this](engine::HandoffKey, std::vector<int64_t> bytes) { OnDone(bytes); },
          .failed = [](engine::HandoffKey, const absl::Status& status) { Check(status); },
          .stopped = [](engine::HandoffKey) {},
          .part = [this](engine::HandoffKey,
                         std::vector<StagedBlock> part) { Take(std::move(part)); }});
  progress_ = std::make_unique<services::ProgressThread>(
      [this] { sender_->Pump(std::chrono::milliseconds(20)); }, [this] { transport_->Wake(); });
}

HandshakeWriter::~HandshakeWriter() {
  progress_.reset();
  calls_.CancelAndWait();
}

void HandshakeWriter::Prepare(const HandshakeJob& job) {
  job_ = job;
  over_ = false;
  const int64_t blocks = shape_.kv.num_blocks;
  const int64_t begin = blocks * index_ / job.writers, end = blocks * (index_ + 1) / job.writers;
  std::vector<HandoffBlock> share;
  for (int64_t block = begin; block < end; ++block) {
    share.push_back({block, {static_cast<int32_t>(block)}});
  }
  sender_->Open(Key(), std::move(share), blocks * shape_.kv.block_tokens);
  if (job.mode != HandshakeMode::kNone) return;
  OpenTransfer();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return over_; });
  over_ = false;
}

Clock::time_point HandshakeWriter::Run(Clock::time_point start) {
  std::this_thread::sleep_until(start);
  if (job_.mode == HandshakeMode::kOpenTransfer) OpenTransfer();
  if (job_.mode == HandshakeMode::kStaged) AcquireStagingBuffer();
  const int layers = shape_.kv.num_layers;
  for (int layer = 0; layer < layers; ++layer) {
    std::this_thread::sleep_until(start + job_.prefill * (layer + 1) / layers);
    sender_->Written(Key(), layer, shape_.kv.num_blocks * shape_.kv.block_tokens);
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return over_; });
  return over_at_;
}

void HandshakeWriter::Conclude() {
  if (job_.mode != HandshakeMode::kNone) return;
  over_ = false;
  Commit();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return over_; });
}

void HandshakeWriter::Over() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  over_at_ = Clock::now();
  changed_.notify_all();
}

void HandshakeWriter::OpenTransfer() {
  scheduler::OpenTransferRequest request;
  request.id = {1, job_.serial};
  request.epoch = {1};
  request.prefill = {static_cast<uint64_t>(index_ + 1)};
  request.incarnation = {1};
  request.shape = services::ShapeOf({.model_hash = "emulated", .kv = shape_.kv});
  services::CallUnary<v1::OpenTransferResponse>(
      "decode-worker", &calls_, services::ToProto(request), kDeadlineUs,
      [this](auto* c, auto* q, auto* r, auto f) {
        decode_->async()->OpenTransfer(c, q, r, std::move(f));
      },
      [this, sent = Clock::now()](const absl::Status& status,
                                  const v1::OpenTransferResponse& response) {
        Check(status);
        opens_us_.push_back(MicrosSince(sent));
        Granted(response);
      });
}

void HandshakeWriter::Granted(const v1::OpenTransferResponse& response) {
  engine::HandoffGrant grant;
  engine::HandoffTarget target{.blocks = {}, .memory = response.memory()};
  for (const int32_t block : response.blocks()) target.blocks.push_back({block});
  grant.targets.push_back(std::move(target));
  grant.post_until = Clock::now() + std::chrono::minutes(1);
  sender_->Grant(Key(), std::move(grant));
  if (job_.mode == HandshakeMode::kNone) Over();
}

void HandshakeWriter::Commit() {
  scheduler::CommitRequest request;
  request.id = {1, job_.serial};
  request.epoch = {1};
  request.prefill = {static_cast<uint64_t>(index_ + 1)};
  request.bytes_per_layer = bytes_;
  request.has_token = false;  // none is wanted
  services::CallUnary<v1::CommitResponse>(
      "decode-worker", &calls_, services::ToProto(request), kDeadlineUs,
      [this](auto* c, auto* q, auto* r, auto f) {
        decode_->async()->Commit(c, q, r, std::move(f));
      },
      [this, sent = Clock::now()](const absl::Status& status, const v1::CommitResponse&) {
        Check(status);
        commits_us_.push_back(MicrosSince(sent));
        Over();
      });
}

double HandshakeWriter::RenewUs() {
  scheduler::RenewRequest request;
  request.id = {1, job_.serial};
  request.epoch = {1};
  request.prefill = {static_cast<uint64_t>(index_ + 1)};
  grpc::ClientContext context;
  v1::RenewResponse response;
  const auto start = Clock::now();
  const grpc::Status status = decode_->Renew(&context, services::ToProto(request), &response);
  SKEIN_CHECK_MSG(status.ok(), status.error_message().c_str());
  return MicrosSince(start);
}

void HandshakeWriter::AcquireStagingBuffer() {
  AskRequest request;
  request.set_request(job_.serial);
  request.set_writer(static_cast<uint64_t>(index_ + 1));
  services::CallUnary<AskResponse>(
      "receiver", &calls_, request, kDeadlineUs,
      [this](auto* c, auto* q, auto* r, auto f) { staging_->async()->Ask(c, q, r, std::move(f)); },
      [this](const absl::Status& status, const AskResponse& response) {
        Check(status);
        buffer_ = response.buffer();
        engine::HandoffGrant grant;
        grant.targets.push_back({.blocks = {}, .memory = response.memory()});
        grant.post_until = Clock::now() + std::chrono::minutes(1);
        grant.staging_slots = response.slots();
        sender_->Grant(Key(), std::move(grant));
      });
}

void HandshakeWriter::Take(std::vector<StagedBlock> part) {
  TakeRequest request;
  request.set_buffer(buffer_);
  std::vector<int32_t> slots;
  for (const StagedBlock& staged : part) {
    TakeRequest::Block* const block = request.add_blocks();
    block->set_slot(staged.slot);
    block->set_layer(staged.layer);
    block->set_global(staged.global);
    slots.push_back(staged.slot);
  }
  services::CallUnary<TakeResponse>(
      "receiver", &calls_, request, kDeadlineUs,
      [this](auto* c, auto* q, auto* r, auto f) { staging_->async()->Take(c, q, r, std::move(f)); },
      [this, slots = std::move(slots)](const absl::Status& status, const TakeResponse&) {
        Check(status);
        sender_->Taken(Key(), slots, status);
      });
}

void HandshakeWriter::Finish() {
  FinishRequest request;
  request.set_request(job_.serial);
  request.set_writer(static_cast<uint64_t>(index_ + 1));
  services::CallUnary<FinishResponse>(
      "receiver", &calls_, request, kDeadlineUs,
      [this](auto* c, auto* q, auto* r, auto f) {
        staging_->async()->Finish(c, q, r, std::move(f));
      },
      [this](const absl::Status& status, const FinishResponse&) {
        Check(status);
        Over();
      });
}

void HandshakeWriter::OnDone(std::vector<int64_t> bytes) {
  bytes_ = std::move(bytes);
  if (job_.mode == HandshakeMode::kNone) return Over();
  if (job_.mode == HandshakeMode::kOpenTransfer) return Commit();
  Finish();
}

}  // namespace skein::bench
