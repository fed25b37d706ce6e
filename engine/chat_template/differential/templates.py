"""Templates in the styles that models ship, written here so that the test needs no download."""

TEMPLATES = {
    "chatml": """{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}
""",
    "alternating": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + content | trim + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "macro_tools": """{%- macro render_type(schema) -%}
  {%- if schema.type == 'object' -%}
    {
    {%- for name, value in schema.properties | dictsort -%}
      {{ name }}{{ '' if name in schema.required | default([]) else '?' }}: {{ render_type(value) }}{{ ', ' if not loop.last }}
    {%- endfor -%}
    }
  {%- elif schema.enum is defined -%}
    {{ schema.enum | map('tojson') | join(' | ') }}
  {%- elif schema.type in ['integer', 'number'] -%}
    number
  {%- else -%}
    {{ schema.type | default('any', true) }}
  {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] %}
// {{ tool.function.description | default('no description') }}
type {{ tool.function.name | title }} = (_: {{ render_type(tool.function.parameters) }}) => any;
{% endfor %}
{%- for m in messages if m.role != 'system' -%}
  {{ m.role | upper }}: {% if m.content is string %}{{ m.content }}{% elif m.content is iterable and m.content is not none %}{% for p in m.content %}{{ p.text if p.type == 'text' else '<' ~ p.type ~ '>' }}{% endfor %}{% endif %}

{%- if m.tool_calls %}
    {%- for c in m.tool_calls %}
 -> {{ (c.function or c).name }}({{ (c.function or c).arguments | tojson(indent=2) }})
    {%- endfor %}
{%- endif %}

{% endfor -%}
{%- set last = messages | selectattr('role', 'equalto', 'user') | list | last -%}
last: {{ last.content | default('none') }}
""",
    "namespaces": """{% set ns = namespace(found=false, count=0, system='') %}
{% for message in messages %}
  {% if message.role == 'system' and not ns.found %}
    {% set ns.found = true %}
    {% set ns.system = message.content %}
    {% continue %}
  {% endif %}
  {% if message.role == 'critic' %}{% break %}{% endif %}
  {% set ns.count = ns.count + 1 %}
  {% generation %}
  {{ loop.index }}/{{ loop.length }} {{ message.role }}{{ ':' if message.content else '-' }} {{ message['content'] or '' }}
  {% endgeneration %}
  {% set ns.system = ns.system ~ loop.index0 %}
{% else %}
nothing
{% endfor %}
{{ ns.count }} {{ ns.system }} {{ ns.found }}
{% set text %}
  {% filter upper %}block {{ ns.count }}{% endfilter %}
{% endset %}
{{ text | trim | tojson }}
{{ strftime_now('%Y-%m-%d') if strftime_now is defined else date_string }}
""",
    # Prints what Llama 3.1's does: a header with dates, the tools before the first question, one call a turn.
    "llama31_layout": """{%- macro turn(role) -%}
<|start_header_id|>{{ role }}<|end_header_id|>

{{ caller() -}}
{%- endmacro -%}
{%- macro listed(functions) %}{% for f in functions %}{{ f | tojson(indent=4) ~ '\n\n' }}{% endfor %}{% endmacro -%}
{%- set functions = custom_tools | default(tools) -%}
{%- set has_functions = functions is defined and functions is not none -%}
{%- set early = tools_in_user_message | default(true) -%}
{%- set ns = namespace(system='', rest=messages, python=builtin_tools is defined) -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set ns.system = messages[0].content | trim -%}
    {%- set ns.rest = messages[1:] -%}
{%- endif -%}
{{- bos_token -}}
{%- call turn('system') -%}
    {%- if ns.python or has_functions %}Environment: ipython
{% endif -%}
    {%- if ns.python %}Tools: {{ (builtin_tools | reject('eq', 'code_interpreter') | join(', ')) ~ '\n\n' }}{% endif -%}
    {{- ['Cutting Knowledge Date: December 2023', 'Today Date: ' ~ date_string | d('26 Jul 2024')] | join('\n') ~ '\n\n' -}}
    {%- if has_functions and not early %}{{ listed(functions) }}{% endif -%}
    {{- ns.system -}}
{%- endcall -%}
<|eot_id|>
{%- if has_functions and early and not ns.rest %}{{ raise_exception('Tools need a first user message.') }}{% endif -%}
{%- for m in ns.rest -%}
    {%- set end = '<|eot_id|>' -%}
    {%- if m.tool_calls is defined -%}
        {%- if m.tool_calls | count > 1 %}{{ raise_exception('Only one tool call at once.') }}{% endif -%}
        {%- set f = m.tool_calls | map(attribute='function') | first -%}
        {%- call turn('assistant') -%}
            {%- if ns.python and f.name in builtin_tools -%}
                <|python_tag|>{{ f.name }}.call({% for k, v in f.arguments.items() %}{{ '%s="%s"' % (k, v) }}{{ ', ' * (not loop.last) }}{% endfor %})
            {%- else -%}
                {{ '{"name": "' ~ f.name ~ '", "parameters": ' ~ f.arguments | tojson ~ '}' }}
            {%- endif -%}
        {%- endcall -%}
        {%- if ns.python %}{% set end = '<|eom_id|>' %}{% endif -%}
    {%- elif m.role in ('tool', 'ipython') -%}
        {%- call turn('ipython') %}{{ m.content | tojson if m.content is iterable else m.content }}{% endcall -%}
    {%- else -%}
        {%- call turn(m.role) -%}
            {{- listed(functions) if loop.first and early and has_functions -}}
            {{- m.content | trim -}}
        {%- endcall -%}
    {%- endif -%}
    {{- end -}}
{%- endfor -%}
{%- if add_generation_prompt %}{% call turn('assistant') %}{% endcall %}{% endif -%}
""",
}
