#include "services/router/api/api.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/random_bits.h"
#include "services/openai/openapi.h"
#include "services/openai/responses.h"
#include "services/router/access/caller.h"
#include "services/router/access/limit_answer.h"
#include "services/router/api/api_error_map.h"
#include "services/router/api/body_notes.h"
#include "services/router/api/identity.h"
#include "services/router/generation/token_range.h"
#include "services/router/spans/gen_ai.h"
#include "services/router/spans/traced_responder.h"

namespace skein::services {
namespace {

using openai::ApiError;
using openai::InvalidParam;
using openai::Kind;
using openai::MaybeError;

std::chrono::sys_seconds Now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

const ApiError kSaturated = {429, "Too many requests are waiting. Retry later.", "",
                             "rate_limit_exceeded"};
const ApiError kDraining = {503, "This router is shutting down. Retry.", "", "draining"};
const ApiError kTooLate = {504, "The request's deadline passed before it was tokenized.", "",
                           "deadline_exceeded"};

// What the conventions for generative AI want to know of a request that is answered.
void Describe(const AnswerPlan& plan, RequestSpans* spans) {
  const openai::GenerationOptions& options = plan.options;
  const std::string_view operation = OperationOf(plan.head.kind);
  spans->Name(operation, plan.model->name);
  spans->Add({"gen_ai.operation.name", operation});
  spans->Add({"gen_ai.provider.name", kProviderName});
  spans->Add({"gen_ai.request.model", plan.model->name});
  spans->Add({"gen_ai.request.stream", options.stream});
  spans->Add({"gen_ai.request.max_tokens", plan.specs.front()->max_tokens});
  if (plan.specs.size() > 1) {
    spans->Add({"gen_ai.request.choice.count", static_cast<int64_t>(plan.specs.size())});
  }
  if (options.temperature) spans->Add({"gen_ai.request.temperature", *options.temperature});
  if (options.top_p) spans->Add({"gen_ai.request.top_p", *options.top_p});
  if (options.top_k) spans->Add({"gen_ai.request.top_k", *options.top_k});
  if (options.seed) spans->Add({"gen_ai.request.seed", *options.seed});
  if (!plan.hints.session.empty()) spans->Add({"gen_ai.conversation.id", plan.hints.session});
  if (plan.offline) spans->Add({"skein.offline", true});
  spans->Enter(RequestPhase::kAdmission, MonotonicUs());
}

const ApiError kNoStream =
    openai::Unsupported("stream", "the answers of a batch are whole; omit it, or set it to false.");

// What a request holds from its plan to its end: its prompts, and each choice's copy in its spec
// and in the message to the orchestrator.
size_t BytesOf(const std::vector<PreparedPrompt>& prompts, const AnswerPlan& plan) {
  const size_t copies = 1 + 2 * static_cast<size_t>(plan.options.best_of);
  size_t bytes = 0;
  for (const PreparedPrompt& prompt : prompts) {
    bytes += prompt.tokens.size() * sizeof(int32_t) * copies;
    if (plan.echo) bytes += prompt.text.size();
  }
  return bytes;
}

const char* PromptParam(Kind kind) { return kind == Kind::kChat ? "messages" : "prompt"; }

// Of a request: what it names, else what its key has, which is also the most urgent that it may
// name. Lower is more urgent.
MaybeError ResolvePriority(std::optional<int64_t> named, std::optional<int32_t> of_key,
                           int64_t* priority) {
  *priority = named.value_or(of_key.value_or(0));
  if (!of_key.has_value() || *priority >= *of_key) return std::nullopt;
  return InvalidParam("priority",
                      absl::StrCat("Invalid value for 'priority': expected at least ", *of_key,
                                   " with this API key, got ", *priority, "."));
}

// Takes what a request will hold out of the budget; `lease` null: there is none. What the budget
// never has room for is the client's fault, not a matter of waiting.
MaybeError Hold(Kind kind, size_t bytes, http::ByteBudget::Lease* lease) {
  if (lease == nullptr) return std::nullopt;
  const size_t bytes_max = lease->budget().LeaseBytesMax();
  if (bytes > bytes_max) {
    return InvalidParam(
        PromptParam(kind),
        absl::StrCat("This request needs ", bytes,
                     " bytes (prompt tokens times choices); this router allows ", bytes_max,
                     " for one request. Send fewer choices or a shorter prompt."));
  }
  if (!lease->Resize(bytes)) return kSaturated;
  return std::nullopt;
}

const Caller& CallerOf(const http::Request& request) {
  static const Caller kAnyone;
  return request.caller == nullptr ? kAnyone : *request.caller;
}

// The goal of a request, which is not more urgent than its key or tenant allows.
int64_t GoalOf(int64_t wanted_us, int64_t of_caller_us) {
  return std::max(wanted_us, of_caller_us);
}

int64_t TokensMax(const AnswerPlan& plan) {
  int64_t tokens = 0;
  for (const PreparedPrompt& prompt : plan.prompts) {
    tokens += static_cast<int64_t>(prompt.tokens.size());
  }
  for (const auto& spec : plan.specs) tokens += spec->max_tokens;
  return tokens;
}

http::Response JsonResponse(std::string body) {
  http::Response response;
  response.body = std::move(body);
  return response;
}

}  // namespace

RouterApi::RouterApi(const RouterApiOptions& options, const Models* models, RouterShell* shell,
                     const ModelWatch* watch, RouterMetrics* metrics)
    : options_(options), models_(models), shell_(shell), watch_(watch), metrics_(metrics) {
  for (int i = 0; i < options.threads; ++i) {
    loops_.push_back(
        std::make_unique<Loop>(options.queue_max / static_cast<size_t>(options.threads) + 1));
    loops_.back()->Start(
        "tokenize", [] { return INT64_MAX; }, [] {});
  }
}

RouterApi::~RouterApi() {
  for (auto& loop : loops_) loop->Stop();
}

void RouterApi::Refuse(const Arrival& arrival, const ResponderPtr& responder, const ApiError& error,
                       std::vector<http::Header> headers, int64_t retry_after_us) {
  if (arrival.charge != nullptr) arrival.charge->Refused(error.status, error.code);
  http::Response response = ToResponse(error, retry_after_us);
  std::move(headers.begin(), headers.end(), std::back_inserter(response.headers));
  responder->Send(std::move(response));
}

void RouterApi::AddRoutes(http::Routes* routes) {
  AddPost("/v1/completions", &RouterApi::Complete, routes);
  AddPost("/v1/chat/completions", &RouterApi::Chat, routes);
  AddPost("/v1/responses", &RouterApi::Respond, routes);
  AddPost("/tokenize", &RouterApi::Tokenize, routes);
  AddPost("/detokenize", &RouterApi::Detokenize, routes);
  routes->AddPage("/openapi.json",
                  [](const http::Request&) { return JsonResponse(openai::OpenApiJson()); });
  routes->AddPage("/v1/models", [this](const http::Request& r) { return ListModels(r); });
  routes->AddPage("/v1/models/*", [this](const http::Request& r) { return ShowModel(r); });
}

void RouterApi::AddPost(const char* path, WorkFn work, http::Routes* routes) {
  routes->Add("POST", path, [this, work](http::Request request, ResponderPtr responder) {
    Dispatch(work, std::move(request), std::move(responder));
  });
}

// On a server thread: refuses at once what needs no look inside.
void RouterApi::Dispatch(WorkFn work, http::Request request, ResponderPtr responder) {
  Arrival arrival{.us = MonotonicUs(), .deadline_us = options_.request_deadline_us};
  Trace(request, &responder, &arrival);
  std::optional<scheduler::tenants::Excess> excess;
  if (options_.accounts != nullptr) arrival.charge = options_.accounts->Begin(request, &excess);
  if (draining()) return Refuse(arrival, responder, kDraining);
  if (excess.has_value()) {
    return Refuse(arrival, responder, LimitError(*excess, arrival.charge->tenant()),
                  ExceededHeaders(*excess), excess->retry_after_us);
  }
  // A page of another site can make a browser post plain text without a preflight, but not JSON.
  if (std::string why = WhyNotPlainJson(request); !why.empty()) {
    return Refuse(arrival, responder, {415, std::move(why), "", "unsupported_media_type"});
  }
  if (request.body.size() <= kSmallBodyBytes) return (this->*work)(request, responder, arrival);
  Loop& loop = *loops_[next_loop_.fetch_add(1) % loops_.size()];
  auto held = std::make_shared<http::Request>(std::move(request));
  const bool taken = loop.TryPost([this, work, held, responder, arrival] {
    if (TimeLeftUs(arrival) <= 0) return Refuse(arrival, responder, kTooLate);
    (this->*work)(*held, responder, arrival);
  });
  if (!taken) Refuse(arrival, responder, kSaturated);
}

void RouterApi::RunLine(const http::Request& request, const ResponderPtr& to, int64_t within_us) {
  ResponderPtr responder = to;
  Arrival arrival{
      .us = MonotonicUs(), .deadline_us = std::min(within_us, kLineDeadlineUs), .offline = true};
  Trace(request, &responder, &arrival);
  if (draining()) return Refuse(arrival, responder, kDraining);
  const scheduler::RouterSnapshot now = shell_->Snapshot();
  if (now.queued > 0 || now.submitted + now.streaming >= options_.max_streams) {
    return Refuse(arrival, responder, kSaturated);
  }
  if (options_.accounts != nullptr) arrival.charge = options_.accounts->BeginLine(request);
  if (request.path == "/v1/chat/completions") return Chat(request, responder, arrival);
  if (request.path == "/v1/completions") return Complete(request, responder, arrival);
  Refuse(arrival, responder,
         InvalidParam(
             "url", absl::StrCat("Invalid value: '", request.path, "' is not served in a batch.")));
}

void RouterApi::Trace(const http::Request& request, ResponderPtr* responder,
                      Arrival* arrival) const {
  arrival->spans = RequestSpans::Begin(options_.tracing, request, arrival->us,
                                       /*may_be_slow=*/!arrival->offline);
  if (arrival->spans == nullptr) return;
  arrival->spans->Name(request.method, request.path);
  *responder = Traced(arrival->spans, std::move(*responder));
}

ApiError RouterApi::NoSuchModel(const http::Request& request, const std::string& name) const {
  std::string names;
  for (const auto& [known, model] : models_->all()) {
    if (!CallerOf(request).MayUse(known)) continue;
    absl::StrAppend(&names, names.empty() ? "'" : ", '", known, "'");
  }
  return {404,
          absl::StrCat("The model '", name, "' does not exist. This router serves ",
                       names.empty() ? "none that this API key may use" : names, "."),
          "model", "model_not_found"};
}

MaybeError RouterApi::FindModel(const http::Request& request, const std::string& name,
                                bool required, const ServedModel** model) const {
  if (name.empty() && required) {
    return InvalidParam("model", "Missing required parameter: 'model'.",
                        "missing_required_parameter");
  }
  *model = name.empty() ? models_->Only() : models_->Find(name);
  if (*model == nullptr || !CallerOf(request).MayUse((*model)->name)) {
    return NoSuchModel(request, name);
  }
  return std::nullopt;
}

openai::ParseLimits RouterApi::Limits() const { return {options_.max_choices, options_.strict}; }

void RouterApi::Complete(const http::Request& request, const ResponderPtr& responder,
                         const Arrival& arrival) {
  openai::CompletionRequest asked;
  AnswerPlan plan;
  std::vector<PreparedPrompt> prompts;
  MaybeError error = openai::Parse(request.body, Limits(), &asked);
  plan.headers = NoteBody(request, asked.notes, metrics_);
  if (!error) error = FindModel(request, asked.model, true, &plan.model);
  for (size_t i = 0; !error && i < asked.prompts.size(); ++i) {
    prompts.emplace_back();
    error = PreparePrompt(*plan.model, asked.prompts[i],
                          {.add_special_tokens = asked.add_special_tokens,
                           .with_text = asked.echo,
                           .tokens_max = LimitsOf(*plan.model).prompt_tokens_max()},
                          &prompts.back());
  }
  plan.options = std::move(asked.options);
  plan.echo = asked.echo;
  plan.held = request.held;
  if (!error) error = Plan(Kind::kCompletion, std::move(prompts), &plan);
  if (error) return Refuse(arrival, responder, *error, std::move(plan.headers));
  Launch(request, responder, arrival, std::move(plan));
}

void RouterApi::Chat(const http::Request& request, const ResponderPtr& responder,
                     const Arrival& arrival) {
  openai::ChatRequest asked;
  AnswerPlan plan;
  std::vector<PreparedPrompt> prompts(1);
  MaybeError error = openai::Parse(request.body, Limits(), &asked);
  plan.headers = NoteBody(request, asked.notes, metrics_);
  if (!error) error = FindModel(request, asked.model, true, &plan.model);
  if (!error) error = PrepareInput(*plan.model, asked.input, &prompts[0]);
  plan.options = std::move(asked.options);
  plan.held = request.held;
  if (!error) error = Plan(Kind::kChat, std::move(prompts), &plan);
  if (error) return Refuse(arrival, responder, *error, std::move(plan.headers));
  Launch(request, responder, arrival, std::move(plan));
}

void RouterApi::Respond(const http::Request& request, const ResponderPtr& responder,
                        const Arrival& arrival) {
  openai::ResponsesRequest asked;
  AnswerPlan plan;
  std::vector<PreparedPrompt> prompts(1);
  MaybeError error = openai::Parse(request.body, Limits(), &asked);
  plan.headers = NoteBody(request, asked.chat.notes, metrics_);
  if (!error) error = FindModel(request, asked.chat.model, true, &plan.model);
  if (!error) error = PrepareInput(*plan.model, asked.chat.input, &prompts[0]);
  plan.options = std::move(asked.chat.options);
  plan.held = request.held;
  if (!error) error = Plan(Kind::kChat, std::move(prompts), &plan);
  if (error && error->param == "messages") error->param = "input";  // what this client calls it
  if (error) return Refuse(arrival, responder, *error, std::move(plan.headers));
  plan.head.id = absl::StrCat("resp_", RandomHex());
  plan.responses = std::make_shared<openai::ResponsesWriter>(
      plan.head, absl::StrCat("msg_", RandomHex()), std::move(asked.settings));
  Launch(request, responder, arrival, std::move(plan));
}

MaybeError RouterApi::PrepareInput(const ServedModel& model, const openai::ChatInput& input,
                                   PreparedPrompt* out) const {
  return PrepareChat(model, input, Now(), LimitsOf(model).prompt_tokens_max(), out);
}

// A request that could never be admitted is the client's fault; waiting does not help.
MaybeError RouterApi::CheckChoices(const AnswerPlan& plan, size_t prompts) const {
  const int64_t choices = static_cast<int64_t>(prompts) * plan.options.best_of;
  const int64_t room = options_.max_streams + options_.max_queued;
  if (choices <= room) return std::nullopt;
  return InvalidParam(
      plan.options.best_of > plan.options.n ? "best_of" : "n",
      absl::StrCat("This request has ", choices, " choices; this router takes at most ", room,
                   " at a time (max_streams ", options_.max_streams, " + max_queued ",
                   options_.max_queued, "). Send fewer prompts or choices in one request."));
}

LengthLimits RouterApi::LimitsOf(const ServedModel& model) const {
  LengthLimits limits{MaxPositions(model), options_.max_prompt_tokens};
  if (options_.default_max_tokens > 0) limits.default_max_tokens = options_.default_max_tokens;
  limits.default_max_tokens = model.max_new_tokens.value_or(limits.default_max_tokens);
  return limits;
}

MaybeError RouterApi::CheckPrompts(Kind kind, const std::vector<PreparedPrompt>& prompts,
                                   const AnswerPlan& plan, std::vector<int64_t>* max_tokens) const {
  const LengthLimits limits = LimitsOf(*plan.model);
  for (const PreparedPrompt& prompt : prompts) {
    MaybeError error =
        ResolveMaxTokens(kind, plan.options, limits, static_cast<int64_t>(prompt.tokens.size()),
                         &max_tokens->emplace_back());
    if (!error) {
      error = CheckTokenRange(plan.model->vocab_size, PromptParam(kind), prompt.tokens);
    }
    if (!error && plan.echo && plan.options.top_logprobs >= 0) {
      error = CheckPromptLogprobs(static_cast<int64_t>(prompt.tokens.size()),
                                  plan.options.top_logprobs);
    }
    if (error) return error;
  }
  return std::nullopt;
}

MaybeError RouterApi::Plan(Kind kind, std::vector<PreparedPrompt> prompts, AnswerPlan* plan) const {
  const openai::GenerationOptions& options = plan->options;
  if (MaybeError error = CheckTokenIds(*plan->model, options)) return error;
  if (MaybeError error = CheckChoices(*plan, prompts.size())) return error;
  std::vector<int64_t> max_tokens;
  if (MaybeError error = CheckPrompts(kind, prompts, *plan, &max_tokens)) return error;
  if (MaybeError error = Hold(kind, BytesOf(prompts, *plan), plan->held.get())) return error;
  for (size_t p = 0; p < prompts.size(); ++p) {
    PreparedPrompt& prompt = prompts[p];
    if (!plan->echo) prompt.text = {};
    const bool score = plan->echo && options.top_logprobs >= 0;
    // A seed that is given holds for each prompt, so that a prompt's text does not depend on its
    // place in the request. Without one, equal prompts have to differ.
    const uint64_t seed =
        options.seed.has_value() ? static_cast<uint64_t>(*options.seed) : RandomBits();
    for (int i = 0; i < options.best_of; ++i) {
      plan->specs.push_back(
          MakeSpec(*plan->model, options, prompt.tokens, max_tokens[p], seed, i, score));
    }
  }
  plan->prompts = std::move(prompts);
  plan->head.kind = kind;
  plan->head.id = absl::StrCat(kind == Kind::kChat ? "chatcmpl-" : "cmpl-", RandomHex());
  plan->head.created = Now().time_since_epoch().count();
  plan->head.model = plan->model->name;
  plan->head.fingerprint = "skein";
  plan->head.include_usage = options.include_usage;
  return std::nullopt;
}

void RouterApi::Launch(const http::Request& request, const ResponderPtr& responder,
                       const Arrival& arrival, AnswerPlan plan) {
  if (MaybeError error = ReadHints(request.headers, &plan.hints))
    return Refuse(arrival, responder, *error);
  const Caller& caller = CallerOf(request);
  if (request.caller != nullptr) plan.hints.tenant = caller.tenant;
  int64_t priority = 0;
  if (MaybeError error = ResolvePriority(plan.options.priority, caller.priority, &priority)) {
    return Refuse(arrival, responder, *error);
  }
  if (arrival.offline) {
    if (plan.options.stream) return Refuse(arrival, responder, kNoStream);
    priority = -int64_t{kLinePriority};
    plan.hints.priority = "offline";
  } else if (plan.options.priority.has_value() || caller.priority.has_value()) {
    plan.hints.priority = absl::StrCat("priority: ", priority);
  }
  if (arrival.charge != nullptr) arrival.charge->SetModel(plan.model->name);
  plan.path = request.path;
  plan.request_id = request.id;
  plan.traceparent = TraceparentOf(request);
  plan.spans = arrival.spans;
  plan.arrived_us = arrival.us;
  plan.offline = arrival.offline;
  plan.trace = options_.trace;
  const int64_t left_us = TimeLeftUs(arrival);
  if (left_us <= 0) return Refuse(arrival, responder, kTooLate);
  if (!MayReserve(responder, arrival, &plan)) return;
  scheduler::RequestId id = shell_->NextIds(plan.specs.size());
  for (auto& spec : plan.specs) {
    spec->id = id;
    spec->names = {plan.head.id, plan.request_id};
    spec->deadline_us = left_us;
    spec->priority = static_cast<int32_t>(-priority);  // there a larger one is served first
    spec->tenant = plan.hints.tenant;
    spec->tenant_weight = caller.weight;
    spec->ttft_goal_us = GoalOf(plan.hints.ttft_goal_us, caller.ttft_goal_us);
    spec->tpot_goal_us = GoalOf(plan.hints.tpot_goal_us, caller.tpot_goal_us);
    ++id.serial;
  }
  SharePrompts(plan.options.best_of, &plan.specs);
  if (plan.spans != nullptr) Describe(plan, plan.spans.get());
  if (Answer::Launch(std::make_shared<Answer>(std::move(plan), responder, shell_, metrics_)))
    return;
  Refuse(arrival, responder, kSaturated);
}

bool RouterApi::MayReserve(const ResponderPtr& responder, const Arrival& arrival,
                           AnswerPlan* plan) const {
  if (arrival.charge == nullptr) return true;
  const auto excess = arrival.charge->Reserve(TokensMax(*plan));
  std::vector<http::Header> headers = arrival.charge->Headers();
  plan->headers.insert(plan->headers.end(), headers.begin(), headers.end());
  if (!excess.has_value()) {
    plan->charge = arrival.charge;
    return true;
  }
  headers = ExceededHeaders(*excess);
  plan->headers.insert(plan->headers.end(), headers.begin(), headers.end());
  Refuse(arrival, responder, LimitError(*excess, arrival.charge->tenant()),
         std::move(plan->headers), excess->retry_after_us);
  return false;
}

void RouterApi::Tokenize(const http::Request& request, const ResponderPtr& responder,
                         const Arrival& arrival) {
  openai::TokenizeRequest asked;
  const ServedModel* model = nullptr;
  PreparedPrompt prompt;
  MaybeError error = openai::Parse(request.body, Limits(), &asked);
  std::vector<http::Header> headers = NoteBody(request, asked.notes, metrics_);
  if (!error) error = FindModel(request, asked.model, false, &model);
  if (error) return Refuse(arrival, responder, *error, std::move(headers));
  if (const auto* text = std::get_if<std::string>(&asked.input)) {
    error = CheckBytes(*model, "prompt", *text, LimitsOf(*model).prompt_tokens_max());
    if (!error) {
      prompt.tokens =
          model->tokenizer->Encode(*text, {.add_special_tokens = asked.add_special_tokens});
    }
  } else {
    auto& chat = std::get<openai::ChatInput>(asked.input);
    chat.add_special_tokens = asked.add_special_tokens;
    error = PrepareInput(*model, chat, &prompt);
  }
  if (error) return Refuse(arrival, responder, *error, std::move(headers));
  std::vector<std::string> strings;
  for (const int32_t token : prompt.tokens) strings.push_back(model->tokenizer->TokenBytes(token));
  SendJson(request, responder, arrival, std::move(headers),
           openai::TokenizeBody(prompt.tokens, MaxPositions(*model),
                                asked.return_token_strs ? &strings : nullptr));
}

void RouterApi::Detokenize(const http::Request& request, const ResponderPtr& responder,
                           const Arrival& arrival) {
  openai::DetokenizeRequest asked;
  const ServedModel* model = nullptr;
  MaybeError error = openai::Parse(request.body, Limits(), &asked);
  std::vector<http::Header> headers = NoteBody(request, asked.notes, metrics_);
  if (!error) error = FindModel(request, asked.model, false, &model);
  if (!error) {
    error = CheckTokenCount("tokens", asked.tokens.size(), LimitsOf(*model).prompt_tokens_max());
  }
  if (!error) error = CheckTokenRange(model->known_tokens(), "tokens", asked.tokens);
  if (error) return Refuse(arrival, responder, *error, std::move(headers));
  SendJson(request, responder, arrival, std::move(headers),
           openai::DetokenizeBody(model->tokenizer->Decode(asked.tokens, false)));
}

// The answer takes the place of the request's body in the byte budget until it has been sent: a
// client may read slowly.
void RouterApi::SendJson(const http::Request& request, const ResponderPtr& responder,
                         const Arrival& arrival, std::vector<http::Header> headers,
                         std::string body) {
  if (request.held != nullptr && !request.held->Resize(body.size())) {
    return Refuse(arrival, responder, kSaturated, std::move(headers));
  }
  if (arrival.charge != nullptr) {
    arrival.charge->End(scheduler::tenants::Outcome::kFinished, 200, "", {});
  }
  http::Response response = JsonResponse(std::move(body));
  response.headers = std::move(headers);
  response.held = request.held;
  responder->Send(std::move(response));
}

http::Response RouterApi::ListModels(const http::Request& request) const {
  std::vector<openai::ModelCard> cards;
  bool ready = watch_ == nullptr;
  for (const auto& [name, model] : models_->all()) {
    if (watch_ != nullptr && !watch_->Ready(name).ok()) continue;
    ready = true;
    if (CallerOf(request).MayUse(name)) cards.push_back(CardOf(*model));
  }
  if (!ready) return ToResponse(ErrorFrom(watch_->Ready()));
  return JsonResponse(openai::ModelListBody(cards));
}

http::Response RouterApi::ShowModel(const http::Request& request) const {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  const ServedModel* model = models_->Find(name);
  if (model == nullptr || !CallerOf(request).MayUse(name)) {
    return ToResponse(NoSuchModel(request, name));
  }
  const absl::Status ready = watch_ == nullptr ? absl::OkStatus() : watch_->Ready(name);
  return ready.ok() ? JsonResponse(openai::ModelBody(CardOf(*model)))
                    : ToResponse(ErrorFrom(ready));
}

int64_t RouterApi::MaxPositions(const ServedModel& model) const {
  const int64_t live = watch_ == nullptr ? 0 : watch_->MaxPositions(model.name);
  return live > 0 ? std::min(live, model.max_positions) : model.max_positions;
}

openai::ModelCard RouterApi::CardOf(const ServedModel& model) const {
  return {model.name, model.created, MaxPositions(model)};
}

}  // namespace skein::services
