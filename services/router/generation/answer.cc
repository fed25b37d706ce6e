#include "services/router/generation/answer.h"
#include "scheduler/vocabulary/mix64.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "services/log/log_limit.h"
#include "services/router/api/api_error_map.h"
#include "services/router/spans/gen_ai.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

openai::Metrics MetricsOf(const RequestTimes& times, int64_t output_tokens) {
  return {times.queue_us, times.plan_us,   times.prefill_us, times.handoff_us,
          times.ttft_us,  times.decode_us, times.total_us,   output_tokens};
}

std::vector<size_t> Iota(size_t n) {
  std::vector<size_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

double Seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

// The error.type of spans and metrics. Empty: the request was answered as asked.
std::string_view ErrorTypeOf(int status, const openai::ApiError& error) {
  if (status == 499) return "client_disconnected";
  if (!error.code.empty()) return error.code;
  return status >= 400 ? "_OTHER" : "";
}

// For the log; empty: it has none.
std::string TraceIdOf(const AnswerPlan& plan) {
  if (plan.spans != nullptr) return Hex(plan.spans->context().trace);
  const auto of_client = ParseTraceparent(plan.traceparent);
  return of_client.has_value() ? Hex(of_client->trace) : "";
}

}  // namespace

Answer::Answer(AnswerPlan plan, std::shared_ptr<http::Responder> responder, RouterShell* shell,
               RouterMetrics* metrics)
    : plan_(std::move(plan)), responder_(std::move(responder)), shell_(shell), metrics_(metrics) {
  for (size_t i = 0; i < plan_.specs.size(); ++i) {
    choices_.push_back({ChoiceText(*plan_.model->tokenizer, plan_.options, static_cast<int>(i),
                                   PromptOf(i).at_text_start)});
  }
  open_ = uncounted_ = unaccepted_ = choices_.size();
}

bool Answer::Launch(std::shared_ptr<Answer> answer) {
  Loop* loop = &answer->shell_->loop();
  if (!loop->TryPost([answer] { answer->Start(); }, Loop::kHelp)) return false;
  const auto on_loop = [loop, weak = std::weak_ptr<Answer>(answer)](auto call) {
    return [loop, weak, call](auto... args) {
      loop->Post([weak, call, args...] {
        if (const auto self = weak.lock()) (self.get()->*call)(args...);
      });
    };
  };
  // After the start, so that a client that has gone already cancels what was submitted.
  answer->responder_->Watch(on_loop(&Answer::OnGone), on_loop(&Answer::OnDrained));
  return true;
}

void Answer::Start() {
  for (const PreparedPrompt& prompt : plan_.prompts) {
    metrics_->Of(plan_.model->name)
        .prompt_tokens.Increment(static_cast<double>(prompt.tokens.size()));
  }
  uint64_t affinity = AffinityOf(plan_.hints);
  // Choices share their prompt's KV, so they belong in one cell.
  if (affinity == 0 && plan_.specs.size() > 1) affinity = Mix64(plan_.specs.front()->id.serial);
  for (size_t i = 0; i < plan_.specs.size() && !closed_; ++i) {
    shell_->Submit(*plan_.specs[i], plan_.traceparent, shared_from_this(), /*shape=*/{}, affinity,
                   plan_.spans);
    if (plan_.trace == nullptr) plan_.specs[i]->prompt = {};  // the router has it as bytes
  }
}

size_t Answer::IndexOf(scheduler::RequestId id) const {
  return static_cast<size_t>(id.serial - plan_.specs.front()->id.serial);
}

const PreparedPrompt& Answer::PromptOf(size_t index) const {
  return plan_.prompts[index / static_cast<size_t>(plan_.options.best_of)];
}

void Answer::Begin(size_t index, const std::string& prompt_logprobs) {
  ChoiceState& choice = choices_[index];
  if (std::exchange(choice.begun, true)) return;
  if (plan_.echo) {
    v1::SampledTokens logprobs;
    logprobs.ParseFromString(prompt_logprobs);
    choice.text.Echo(PromptOf(index), logprobs);
  }
  if (!plan_.options.stream) return;
  if (plan_.responses != nullptr) return Emit(plan_.responses->Begin());
  if (plan_.head.kind == openai::Kind::kChat) {
    Emit(openai::RoleEvent(plan_.head, static_cast<int>(index), UsageNow()));
  }
}

void Answer::Measure(ChoiceState* choice) {
  const int64_t now = MonotonicUs();
  RouterMetrics::Model& series = metrics_->Of(plan_.model->name);
  if (plan_.offline) {
    // not observed
  } else if (choice->last_token_us == 0) {
    Observe(Seconds(now - plan_.arrived_us), &series.ttft_s, &series.ttft_exemplars);
  } else {
    Observe(Seconds(now - choice->last_token_us), &series.inter_token_s,
            &series.inter_token_exemplars);
  }
  if (choice->first_token_us == 0) choice->first_token_us = now;
  if (first_token_us_ == 0) {
    first_token_us_ = now;
    if (plan_.spans != nullptr) plan_.spans->Enter(RequestPhase::kStream, now);
  }
  choice->last_token_us = now;
  ++choice->output_tokens;
  series.generation_tokens.Increment();
}

void Answer::Observe(double seconds, prometheus::Histogram* histogram,
                     SeriesExemplars* exemplars) const {
  histogram->Observe(seconds);
  const std::string_view trace =
      plan_.spans == nullptr ? std::string_view() : plan_.spans->ExemplarId();
  if (!trace.empty()) exemplars->Note(seconds, trace);
}

void Answer::OnAccepted(scheduler::RequestId id) {
  if (!closed_) Accept(IndexOf(id));
}

void Answer::Accept(size_t index) {
  if (std::exchange(choices_[index].accepted, true)) return;
  if (--unaccepted_ == 0 && !held_.empty()) Emit(std::exchange(held_, {}));
}

RequestTimes Answer::TimesOf(const ChoiceState& choice,
                             const scheduler::RequestTimes& before) const {
  RequestTimes times;
  times.plan_us = before.plan_us;
  times.queue_us = before.admission_us + before.plan_us;
  if (before.prefill.has_value()) {
    times.queue_us += before.prefill->queue_us;
    times.prefill_us = before.prefill->prefill_us;
    times.handoff_us = before.prefill->handoff_us;
  }
  if (choice.first_token_us > 0) {
    times.ttft_us = choice.first_token_us - plan_.arrived_us;
    times.decode_us = choice.last_token_us - choice.first_token_us;
  }
  times.total_us = MonotonicUs() - plan_.arrived_us;
  return times;
}

void Answer::OnToken(const scheduler::DeliverToken& token) {
  if (closed_) return;
  const size_t index = IndexOf(token.id);
  Accept(index);
  v1::SampledToken sampled;
  if (!sampled.ParseFromString(token.payload)) {
    const absl::Status status = absl::InternalError("the decode-worker's token is malformed");
    return Fail(ErrorFrom(status), 0, /*begun=*/true);
  }
  ChoiceState& choice = choices_[index];
  Measure(&choice);
  Begin(index, token.prompt_logprobs);
  ++choice.score.tokens;
  choice.score.logprob_sum += sampled.logprob();
  choice.text.Push(token.token, sampled);
  if (choice.text.stopped()) shell_->StopMatched(token.id);
  if (plan_.options.stream && choice.text.has_text()) EmitText(index);
}

void Answer::OnEnd(const scheduler::End& end) {
  if (closed_) return;
  const size_t index = IndexOf(end.id);
  ChoiceState& choice = choices_[index];
  choice.ended = true;
  if (end.status.ok() && end.stop_token >= 0) Measure(&choice);  // a token that has no text
  choice.output_tokens = end.output_tokens;
  choice.times = TimesOf(choice, end.times);
  last_metrics_ = MetricsOf(choice.times, end.output_tokens);
  --open_;
  if (!end.status.ok()) return Fail(ErrorFrom(end.status), 0, end.begun);
  Accept(index);
  --uncounted_;
  choice.finish_reason = end.reason == scheduler::FinishReason::kLength ? "length" : "stop";
  if (!plan_.offline) {
    metrics_->CountFinished(plan_.model->name, {.reason = choice.finish_reason,
                                                .times = choice.times,
                                                .prompt_tokens = end.prompt_tokens,
                                                .output_tokens = end.output_tokens,
                                                .max_tokens = plan_.specs[index]->max_tokens});
    CountTokens(choice);
  }
  Begin(index, end.prompt_logprobs);
  const auto& eos = plan_.model->eos_ids;
  choice.text.Finish(end.reason == scheduler::FinishReason::kLength, end.stop_token,
                     std::count(eos.begin(), eos.end(), end.stop_token) > 0);
  if (plan_.options.stream) EmitText(index);
  if (open_ == 0) Complete();
}

void Answer::CountTokens(const ChoiceState& choice) {
  if (choice.output_tokens < 2) return;
  metrics_->gen_ai().CountTokens(
      OperationOf(plan_.head.kind), plan_.model->name,
      Seconds(choice.times.decode_us) / static_cast<double>(choice.output_tokens - 1));
}

void Answer::OnReject(const scheduler::Reject& reject) {
  if (closed_) return;
  choices_[IndexOf(reject.id)].ended = true;
  --open_;
  Fail(ErrorFrom(reject.status), reject.retry_after_us, /*begun=*/first_token_us_ != 0);
}

void Answer::OnStop() {
  if (closed_) return;
  Fail({503, "This router stopped before the answer's end. Retry.", "", "draining"}, 0,
       /*begun=*/true);
}

void Answer::EmitText(size_t index) {
  openai::Choice piece = choices_[index].text.Take();
  if (plan_.options.return_token_ids && !choices_[index].prompt_ids_sent) {
    choices_[index].prompt_ids_sent = true;
    piece.prompt_token_ids = &PromptOf(index).tokens;
  }
  if (plan_.responses != nullptr) return Emit(plan_.responses->Piece(piece));
  const bool last = open_ == 0 && !plan_.head.include_usage;
  Emit(openai::ChoiceEvent(plan_.head, piece, UsageNow(), last ? MetricsAtEnd() : nullptr));
}

void Answer::Emit(std::string event) {
  if (unaccepted_ > 0) {
    held_ += event;
    return;
  }
  if (!std::exchange(headed_, true)) {
    http::Response head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = plan_.headers;
    head.headers.push_back({"Cache-Control", "no-cache"});
    head.noted = true;
    responder_->StartStream(std::move(head));
  }
  if (responder_->Write(std::move(event)) || paused_) return;
  paused_ = true;
  for (const auto& spec : plan_.specs) shell_->SetPaused(spec->id, true);
}

void Answer::OnDrained() {
  if (!std::exchange(paused_, false) || closed_) return;
  for (const auto& spec : plan_.specs) shell_->SetPaused(spec->id, false);
}

openai::Usage Answer::TotalUsage() const {
  openai::Usage usage;
  for (const PreparedPrompt& prompt : plan_.prompts) {
    usage.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
  }
  for (const ChoiceState& choice : choices_) usage.completion_tokens += choice.output_tokens;
  return usage;
}

const openai::Metrics* Answer::MetricsAtEnd() const {
  return plan_.options.return_metrics ? &last_metrics_ : nullptr;
}

const openai::Usage* Answer::UsageNow() {
  if (!plan_.options.continuous_usage) return nullptr;
  usage_now_ = TotalUsage();
  return &usage_now_;
}

// The best n of each prompt's choices, numbered anew.
std::vector<openai::Choice> Answer::TakeChoices() {
  const auto n = static_cast<size_t>(plan_.options.n);
  const auto sampled = static_cast<size_t>(plan_.options.best_of);
  std::vector<openai::Choice> out;
  for (size_t first = 0; first < choices_.size(); first += sampled) {
    std::vector<ChoiceScore> scores;
    for (size_t i = 0; i < sampled; ++i) scores.push_back(choices_[first + i].score);
    // With n of n the choices keep their order.
    for (const size_t i : n < sampled ? BestOf(scores, n) : Iota(n)) {
      out.push_back(choices_[first + i].text.Take());
      out.back().index = static_cast<int>(out.size()) - 1;
      if (plan_.options.return_token_ids) {
        out.back().prompt_token_ids = &PromptOf(first + i).tokens;
      }
    }
  }
  return out;
}

void Answer::CountPrompts() {
  const auto sampled = static_cast<size_t>(plan_.options.best_of);
  for (size_t first = 0; first < choices_.size(); first += sampled) {
    int64_t longest = 0;
    for (size_t i = first; i < first + sampled; ++i) {
      longest = std::max(longest, choices_[i].output_tokens);
    }
    metrics_->CountPrompt(plan_.model->name, plan_.options.n, longest);
  }
}

void Answer::Complete() {
  if (!plan_.offline) CountPrompts();
  const openai::Usage usage = TotalUsage();
  if (plan_.options.stream) {
    if (plan_.head.include_usage) Emit(openai::UsageEvent(plan_.head, usage, MetricsAtEnd()));
    Emit(plan_.responses != nullptr ? plan_.responses->End(usage)
                                    : std::string(openai::kDoneEvent));
    Close(200, "finished");
    return responder_->Finish();
  }
  http::Response response;
  response.noted = true;
  response.headers = plan_.headers;
  const std::vector<openai::Choice> choices = TakeChoices();
  response.body = plan_.responses != nullptr
                      ? plan_.responses->Whole(choices.front(), usage)
                      : openai::WholeAnswer(plan_.head, choices, usage, MetricsAtEnd());
  Close(200, "finished");
  responder_->Send(std::move(response));
}

void Answer::Fail(const openai::ApiError& error, int64_t retry_after_us, bool begun) {
  CancelRest();
  // A client's mistake, and a refusal for want of room, are no faults of ours.
  if (error.status >= 500 && !plan_.offline)
    metrics_->CountEnds(plan_.model->name, "error", uncounted_);
  Close(error.status, begun ? "failed" : "refused", error);
  if (headed_) {
    responder_->Write(plan_.responses != nullptr ? plan_.responses->Failed(error, TotalUsage())
                                                 : openai::ErrorEvent(error));
    return responder_->Finish();
  }
  http::Response response = ToResponse(error, retry_after_us);
  response.headers.insert(response.headers.end(), plan_.headers.begin(), plan_.headers.end());
  response.noted = true;
  AddDroppedReason(begun, &response);
  responder_->Send(std::move(response));
}

void Answer::OnGone(http::Gone why) {
  if (closed_) return;
  CancelRest();
  if (!plan_.offline) {
    metrics_->CountEnds(plan_.model->name, why == http::Gone::kStopped ? "error" : "abort",
                        uncounted_);
  }
  switch (why) {
    case http::Gone::kClient:
      return Close(499, "client disconnected");
    case http::Gone::kStalled:
      return Close(499, "dropped: the client read nothing for --write-timeout-s");
    case http::Gone::kStopped:
      return Close(503, "cut off: the router stopped before the answer's end");
  }
}

void Answer::CancelRest() {
  closed_ = true;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!choices_[i].ended) shell_->Cancel(plan_.specs[i]->id);
  }
}

void Answer::EndSpans(int status, const openai::ApiError& error, const openai::Usage& usage,
                      int64_t now_us) {
  if (plan_.spans == nullptr) return;
  RequestSpans& spans = *plan_.spans;
  std::vector<std::string> reasons;
  reasons.reserve(choices_.size());
  for (const ChoiceState& choice : choices_) {
    reasons.emplace_back(choice.finish_reason.empty() ? "error" : choice.finish_reason);
  }
  spans.Add({"gen_ai.response.id", plan_.head.id});
  spans.Add({"gen_ai.response.model", plan_.model->name});
  spans.Add({"gen_ai.response.finish_reasons", std::move(reasons)});
  spans.Add({"gen_ai.usage.input_tokens", usage.prompt_tokens});
  spans.Add({"gen_ai.usage.output_tokens", usage.completion_tokens});
  if (first_token_us_ != 0) {
    spans.Add({"gen_ai.response.time_to_first_chunk",
               static_cast<double>(first_token_us_ - plan_.arrived_us) * 1e-6});
  }
  spans.End(status, ErrorTypeOf(status, error), now_us);
}

void Answer::CountAnswer(int status, const openai::ApiError& error, int64_t now_us) {
  metrics_->CountAnswer(plan_.path, status);
  RouterMetrics::Model& series = metrics_->Of(plan_.model->name);
  const double seconds = Seconds(now_us - plan_.arrived_us);
  Observe(seconds, &series.e2e_s, &series.e2e_exemplars);
  const std::string_view operation = OperationOf(plan_.head.kind);
  const std::string_view failure = ErrorTypeOf(status, error);
  metrics_->gen_ai().CountRequest(operation, plan_.model->name, failure, seconds);
  if (!failure.empty() || first_token_us_ == 0) return;
  metrics_->gen_ai().CountFirstToken(operation, plan_.model->name,
                                     Seconds(first_token_us_ - plan_.arrived_us));
}

// A tenant is charged for what instances may have worked for. A request that was refused, or that
// failed before its first token, costs nothing; one whose client has left costs its prompt and the
// tokens that had come.
void Answer::Charged(int status, std::string_view outcome, const openai::ApiError& error,
                     const openai::Usage& usage) {
  using scheduler::tenants::Outcome;
  if (plan_.charge == nullptr) return;
  const bool counts = status == 200 || status == 499 || first_token_us_ != 0;
  const Outcome how = status == 200          ? Outcome::kFinished
                      : status == 499        ? Outcome::kCancelled
                      : outcome == "refused" ? Outcome::kRefused
                                             : Outcome::kFailed;
  plan_.charge->End(how, status, error.code,
                    counts
                        ? scheduler::tenants::TokenUse{usage.prompt_tokens, usage.completion_tokens}
                        : scheduler::tenants::TokenUse{});
}

void Answer::Close(int status, std::string_view outcome, const openai::ApiError& error) {
  closed_ = true;
  const int64_t now = MonotonicUs();
  const openai::Usage usage = TotalUsage();
  EndSpans(status, error, usage, now);
  Charged(status, outcome, error, usage);
  const bool recorded = plan_.trace != nullptr && outcome != "refused";
  for (size_t i = 0; recorded && i < choices_.size(); ++i) {
    plan_.trace->Record({plan_.arrived_us, plan_.specs[i], choices_[i].output_tokens});
  }
  if (!plan_.offline) CountAnswer(status, error, now);
  const Level level = status == 500 || status == 503 ? Level::kWarning : Level::kInfo;
  const std::initializer_list<LogField> fields = {
      {"request_id", plan_.request_id},
      {"trace_id", TraceIdOf(plan_)},
      {"id", plan_.head.id},
      {"path", plan_.path},
      {"model", plan_.model->name},
      {"status", status},
      {"outcome", outcome},
      {"code", error.code},
      {"param", error.param},
      {"error", error.message},
      {"choices", static_cast<int64_t>(choices_.size())},
      {"prompt_tokens", usage.prompt_tokens},
      {"output_tokens", usage.completion_tokens},
      {"ttft_us", first_token_us_ == 0 ? 0 : first_token_us_ - plan_.arrived_us},
      {"total_us", now - plan_.arrived_us},
      {"session", plan_.hints.session},
      {"tenant", plan_.hints.tenant},
      {"priority", plan_.hints.priority}};
  if (outcome == "refused")
    return LogLimited(RefusalKind(status, error.code), level, "request", fields);
  Log(level, "request", fields);
}

}  // namespace skein::services
