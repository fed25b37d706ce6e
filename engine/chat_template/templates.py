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
}
