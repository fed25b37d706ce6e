// What the router sends (console_view.cc), for the type check of the page's scripts. Ids are text: a number has 53 bits.
export interface Instance {
  cell: number; id: string; role: string; model: string; node: string; device: string; endpoint: string; version: string;
  pid: number; state: string; joined_at_ms: number; blocks: number; held: number; cached: number; running: number;
  waiting: number; queued_tokens: number; tokens_per_s: number; queue_s?: number; freeness?: number; slowness?: number;
  pace?: string;
}
export interface Formation {
  members: string[]; name: string; stage: string; epoch: string; pinned: boolean; since_at_ms: number; why?: string;
}
export interface Group {
  cell: number; name: string; role: string; model: string; node: string; members: string[]; formations: Formation[];
  rejected: { formation: string; why: string }[]; ready: number; why?: string;
}
export interface Chunk {
  tokens: number; instances: string[]; tp: number; estimated_start_s: number; estimated_end_s: number; start_s?: number;
  end_s?: number;
}
export interface Plan {
  epoch: string; decided_s: number; how: string; estimated_ttft_s: number; chunks: Chunk[]; group: number; decode?: string;
  lost?: string;
}
export interface WholePlan extends Plan {
  improvement_rate: number;
  queue: { instance: string; queue_s: number }[];
  alternatives: { sp: number; start_s: number; ttft_s: number; why: string }[];
  handoffs: { instance: string; path: string; transport: string; retries: number; slower: string }[];
  switches: {
    start_s: number; end_s?: number; from: number; to: number; cause: string; why: string; meaning: string; outcome: string;
    reason: string;
  }[];
}
export interface RequestTimes {
  id: string; name: string; model: string; prompt_tokens: number; policy: string; state: string; ended: boolean;
  submitted_at_ms: number; output_tokens?: number; placed_s?: number; prefilled_s?: number; first_token_s?: number;
  ended_s?: number; degraded: Record<string, number>;
}
export interface Request extends RequestTimes { cell: number; plans?: number; plan?: Plan; }
export interface Explanation extends RequestTimes { names: string[]; plans: WholePlan[]; }
export interface Job {
  id: string; model: string; state: string; lines: number; completed: number; failed: number; running: number;
  created_at_ms: number; expires_at_ms: number; tokens_per_s: number; left_s: number; late: boolean;
}
export interface Cell {
  name: string; reached: boolean; version: string; generation: number; submitted: number; failed: number; refused: number;
  lost: number; planning: number; waiting_for_decode: number; reserving: number; placed: number; parked: number;
  invariants: string; up_at_ms: number; problem?: string;
}
export interface Router {
  cell: number; id: string; endpoint: string; host: string; version: string; state: string; queued: number; running: number;
}
export interface Gone {
  cell: number; instance: string; role: string; model: string; endpoint: string; gone_at_ms: number; why: string; left: boolean;
  replaced: boolean;
}
export interface Event { at_ms: number; kind: string; level: string; text: string; about: string; }
export interface Self { version: string; models: string[]; router: string; orders: boolean; needs_api_key: boolean; }
export interface View {
  cells: Record<string, Cell>; routers: Record<string, Router>; instances: Record<string, Instance>;
  groups: Record<string, Group>; requests: Record<string, Request>; jobs: Record<string, Job>; gone: Record<string, Gone>;
  refused: Record<string, { what: string; model: string; endpoint: string; version: string; why: string; times: number }>;
  events: Record<string, Event>; self: Self;
}
