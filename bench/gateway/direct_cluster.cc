#include "bench/gateway/direct_cluster.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "proto/decode_worker.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/rpc.h"
#include "services/rpc/status_map.h"

namespace skein::bench {
namespace {

constexpr int64_t kCallDeadlineUs = 30'000'000;
constexpr uint64_t kInstanceLeaseUs = 3'000'000;  // the orchestrator's default
constexpr uint64_t kGeneration = 1;
constexpr uint64_t kIncarnation = 1;
constexpr uint64_t kRouter = 1;  // the incarnation in every request's id

using WorkerStream = services::ServerStream<v1::WorkerMessages, v1::OrchestratorMessages>;

// One worker as it registered, and its stream.
struct Worker {
  v1::RegisterRequest registration;
  std::shared_ptr<WorkerStream> stream;
  services::MessageCounters counters;
  bool registered = false;

  void Send(v1::OrchestratorMessage message) {
    counters.Stamp(&message, 0);
    stream->Write(std::move(message));
  }
};

// One request from Assign to the last token.
class Stream final {
 public:
  using Ended = std::function<void(Stream*, absl::Status)>;

  Stream(v1::RequestSpec spec, Ended ended) : spec_(std::move(spec)), ended_(std::move(ended)) {}

  const v1::RequestSpec& spec() const { return spec_; }
  uint64_t epoch() const { return spec_.id().serial(); }
  int64_t start_us() const { return start_us_; }
  int64_t first_us() const { return first_us_; }

  void Take(const v1::TokenBatch::Sequence& sequence) {
    if (tokens_ == 0 && sequence.tokens_size() > 0) first_us_ = NowUs();
    in_order_ = in_order_ && sequence.first_index() == tokens_;
    tokens_ += static_cast<uint64_t>(sequence.tokens_size());
    if (!sequence.has_finished()) return;
    const bool whole = in_order_ && tokens_ == spec_.max_tokens() &&
                       sequence.finished().reason() == v1::FINISH_REASON_LENGTH;
    Fail(whole ? absl::OkStatus() : absl::DataLossError("not all tokens came, in order"));
  }

  // Ends the stream, also before a token came. The first call counts.
  void Fail(absl::Status status) {
    if (const Ended ended = std::exchange(ended_, nullptr)) ended(this, std::move(status));
  }

 private:
  const v1::RequestSpec spec_;
  const int64_t start_us_ = NowUs();
  Ended ended_;
  int64_t first_us_ = 0;
  uint64_t tokens_ = 0;
  bool in_order_ = true;
};

// The one token stream to the decode-worker. Requests may be attached from any thread.
class Tokens final : public grpc::ClientBidiReactor<v1::TokenStreamRequest, v1::TokenBatch> {
 public:
  // On gRPC's threads, one batch at a time; the second when the stream has ended.
  using Batch = std::function<void(const v1::TokenBatch&)>;
  using Ended = std::function<void(absl::Status)>;

  Tokens(v1::DecodeWorker::Stub* stub, Batch batch, Ended ended)
      : batch_(std::move(batch)), ended_(std::move(ended)) {
    stub->async()->StreamTokens(&context_, this);
    AddHold();  // writes are started from everywhere
    StartRead(&read_);
    StartCall();
  }
  ~Tokens() override {
    context_.TryCancel();
    RemoveHold();
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return done_; });
  }

  void Attach(const Stream& stream) {
    std::lock_guard lock(mu_);
    v1::TokenStreamRequest::Attach* attach = next_.add_attach();
    *attach->mutable_id() = stream.spec().id();
    attach->set_epoch(stream.epoch());
    attach->set_credit(stream.spec().max_tokens());
    WriteNext();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return ended_(absl::UnavailableError("the token stream ended"));
    batch_(read_);
    StartRead(&read_);
  }

  void OnWriteDone(bool) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    WriteNext();
  }

  void OnDone(const grpc::Status&) override {
    std::lock_guard lock(mu_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  // REQUIRES: mu_ held.
  void WriteNext() {
    if (writing_ || next_.attach().empty()) return;
    writing_ = true;
    written_.Clear();
    written_.Swap(&next_);
    StartWrite(&written_);
  }

  const Batch batch_;
  const Ended ended_;
  grpc::ClientContext context_;
  v1::TokenBatch read_;
  std::mutex mu_;
  std::condition_variable changed_;
  v1::TokenStreamRequest next_, written_;
  bool writing_ = false;
  bool done_ = false;
};

class Cluster final : public DirectCluster, public v1::Orchestrator::CallbackService {
 public:
  ~Cluster() override {
    tokens_.reset();
    {
      std::lock_guard lock(mu_);
      for (Worker* worker : {&prefill_, &decode_}) {
        if (worker->stream != nullptr) worker->stream->Close(grpc::Status::CANCELLED);
      }
    }
    rpc_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  absl::Status Listen() {
    auto rpc = services::ServeRpc("127.0.0.1:0", {this});
    if (rpc.ok()) rpc_ = *std::move(rpc);
    return rpc.status();
  }

  int port() const override { return rpc_.port; }

  absl::Status AwaitWorkers(double seconds) override {
    std::unique_lock lock(mu_);
    const bool there = changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] {
      return prefill_.registered && decode_.registered;
    });
    if (!there) return absl::DeadlineExceededError("the workers did not register");
    decode_stub_ = v1::DecodeWorker::NewStub(channels_.Get(decode_.registration.endpoint()));
    tokens_ = std::make_unique<Tokens>(
        decode_stub_.get(), [this](const v1::TokenBatch& batch) { Take(batch); },
        [this](const absl::Status& status) { FailAll(status); });
    return absl::OkStatus();
  }

  Samples Run(const DirectLoad& load, const Limit& limit) override {
    std::unique_lock lock(mu_);
    SKEIN_CHECK(streams_.empty());
    load_ = &load;
    limit_ = limit;
    samples_ = Samples{};
    started_ = 0;
    start_us_ = NowUs();
    lock.unlock();
    for (int i = 0; i < load.concurrency; ++i) StartNext();
    lock.lock();
    SKEIN_CHECK(changed_.wait_for(lock, std::chrono::duration<double>(limit.seconds_max + 60),
                                  [this] { return streams_.empty(); }));
    samples_.seconds = std::min(static_cast<double>(NowUs() - start_us_) * 1e-6, limit.seconds_max);
    return std::move(samples_);
  }

  // ---- what workers call ----

  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    auto stream = WorkerStream::Make(context, [](const std::function<void()>& hook) { hook(); });
    {
      std::lock_guard lock(mu_);
      opened_[stream.get()] = stream;
    }
    stream->Open(
        {.message = [this, s = stream.get()](const auto& m) { Take(s, m); }, .ended = [] {}});
    return stream.get();
  }

 private:
  // REQUIRES: mu_ held.
  Worker* WorkerOf(const WorkerStream* stream) {
    if (prefill_.stream.get() == stream) return &prefill_;
    return decode_.stream.get() == stream ? &decode_ : nullptr;
  }

  void Take(WorkerStream* stream, const v1::WorkerMessage& message) {
    if (message.has_hello()) return Welcome(stream, message);
    std::shared_ptr<Stream> ends;  // ended after the lock
    absl::Status why;
    {
      std::lock_guard lock(mu_);
      Worker* const worker = WorkerOf(stream);
      if (worker == nullptr) return;
      SKEIN_CHECK(worker->counters.Take(message, 0).ok());
      v1::OrchestratorMessage answer;
      if (message.has_report()) {
        answer.mutable_report_taken();
        worker->Send(std::move(answer));
      } else if (message.has_goodbye()) {
        answer.mutable_goodbye_taken();
        worker->Send(std::move(answer));
      } else if (message.has_place_decode()) {
        ends = Refuse(message.place_decode(), &why);
      } else if (message.has_assigned() && message.assigned().has_failure()) {
        ends = Find(message.assigned().id().serial());
        why = services::FromProto(message.assigned().failure());
      } else if (message.has_opened()) {
        const auto stream = Find(message.opened().id().serial());
        if (stream != nullptr) tokens_->Attach(*stream);
      }
    }
    if (ends != nullptr) ends->Fail(std::move(why));
  }

  void Welcome(WorkerStream* stream, const v1::WorkerMessage& message) {
    std::lock_guard lock(mu_);
    Worker& worker = message.hello().role() == v1::ROLE_PREFILL ? prefill_ : decode_;
    const auto opened = opened_.extract(stream);
    worker = {message.hello(), opened.mapped(), services::MessageCounters(++last_session_)};
    SKEIN_CHECK(worker.counters.Take(message, 0).ok());
    v1::OrchestratorMessage welcome;
    welcome.mutable_welcome()->set_instance(message.hello().role());
    welcome.mutable_welcome()->set_lease_us(kInstanceLeaseUs);
    welcome.mutable_welcome()->mutable_generation()->set_number(kGeneration);
    welcome.mutable_welcome()->mutable_generation()->set_orchestrator(kIncarnation);
    worker.Send(std::move(welcome));
    worker.registered = true;
    changed_.notify_all();
  }

  // REQUIRES: mu_ held. There is no other decode-worker: the stream ends with `why`, if it is
  // alive.
  std::shared_ptr<Stream> Refuse(const v1::PlaceDecodeRequest& asked, absl::Status* why) {
    *why = services::FromProto(asked.failure());
    v1::OrchestratorMessage message;
    v1::PlaceDecodeResponse* answer = message.mutable_decode_placed();
    *answer->mutable_id() = asked.id();
    answer->set_epoch(asked.epoch());
    services::ToProto(absl::NotFoundError("no other decode instance"), answer->mutable_failure());
    prefill_.Send(std::move(message));
    return Find(asked.id().serial());
  }

  // REQUIRES: mu_ held.
  std::shared_ptr<Stream> Find(uint64_t serial) {
    const auto it = streams_.find(serial);
    return it == streams_.end() ? nullptr : it->second;
  }

  void Take(const v1::TokenBatch& batch) {
    for (const v1::TokenBatch::Sequence& sequence : batch.sequences()) {
      if (const auto stream = Find(sequence.id().serial())) stream->Take(sequence);
    }
  }

  void FailAll(const absl::Status& status) {
    std::vector<std::shared_ptr<Stream>> all;
    {
      std::lock_guard lock(mu_);
      for (const auto& [serial, stream] : streams_) all.push_back(stream);
    }
    for (const auto& stream : all) stream->Fail(status);
  }

  // REQUIRES: mu_ held.
  bool MayStart() const {
    return started_ < limit_.streams_max &&
           static_cast<double>(NowUs() - start_us_) * 1e-6 < limit_.seconds_max;
  }

  // REQUIRES: mu_ held.
  v1::RequestSpec NextSpec() {
    v1::RequestSpec spec;
    spec.mutable_id()->set_router(kRouter);
    spec.mutable_id()->set_serial(++last_serial_);
    spec.set_model(prefill_.registration.model());
    spec.set_prompt(services::PackTokens(load_->prompt));
    spec.set_max_tokens(static_cast<uint32_t>(load_->output_tokens));
    v1::SamplingParams sampling;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
    sampling.set_top_logprobs(-1);
    spec.set_sampling(sampling.SerializeAsString());
    return spec;
  }

  void StartNext() {
    std::lock_guard lock(mu_);
    if (!MayStart()) return;
    ++started_;
    auto stream = std::make_shared<Stream>(
        NextSpec(), [this](Stream* s, absl::Status status) { End(s, std::move(status)); });
    streams_[last_serial_] = stream;
    v1::OrchestratorMessage message;
    const std::string spec = stream->spec().SerializeAsString();
    message.mutable_assign()->set_spec(spec);
    message.mutable_assign()->set_epoch(stream->epoch());
    message.mutable_assign()->set_sequence(last_serial_);
    v1::DecodePlace* place = message.mutable_assign()->mutable_placed();
    place->set_epoch(stream->epoch());
    place->set_decode_instance(v1::ROLE_DECODE);
    place->set_decode_endpoint(decode_.registration.endpoint());
    v1::OrchestratorMessage announcement;
    announcement.mutable_announce()->set_spec(spec);
    announcement.mutable_announce()->set_epoch(stream->epoch());
    announcement.mutable_announce()->add_writers(prefill_.registration.incarnation());
    decode_.Send(std::move(announcement));
    prefill_.Send(std::move(message));
  }

  void End(Stream* stream, absl::Status status) {
    const int64_t now = NowUs();
    {
      std::lock_guard lock(mu_);
      if (status.ok()) {
        samples_.streams.push_back(
            {stream->first_us() - stream->start_us(), now - stream->start_us()});
        samples_.in_time += MayStillCount(now) ? 1 : 0;
      } else {
        samples_.Fail("gRPC: " + status.ToString());
      }
    }
    StartNext();
    std::shared_ptr<Stream> last;  // destroyed after the lock
    std::lock_guard lock(mu_);
    const auto it = streams_.find(stream->epoch());
    last = std::move(it->second);
    streams_.erase(it);
    if (streams_.empty()) changed_.notify_all();
  }

  bool MayStillCount(int64_t now) const {
    return static_cast<double>(now - start_us_) * 1e-6 < limit_.seconds_max;
  }

  services::Channels channels_;
  std::mutex mu_;
  std::condition_variable changed_;
  Worker prefill_, decode_;
  std::map<const WorkerStream*, std::shared_ptr<WorkerStream>> opened_;  // not registered yet
  uint64_t last_session_ = scheduler::FirstNumberOf(kGeneration) - 1;
  std::unique_ptr<v1::DecodeWorker::Stub> decode_stub_;
  std::unique_ptr<Tokens> tokens_;
  std::map<uint64_t, std::shared_ptr<Stream>> streams_;  // by serial
  uint64_t last_serial_ = 0;
  // The run under way.
  const DirectLoad* load_ = nullptr;
  Limit limit_;
  Samples samples_;
  int64_t started_ = 0;
  int64_t start_us_ = 0;
  services::RpcServer rpc_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DirectCluster>> DirectCluster::Start() {
  auto cluster = std::make_unique<Cluster>();
  if (absl::Status status = cluster->Listen(); !status.ok()) return status;
  return cluster;
}

}  // namespace skein::bench
